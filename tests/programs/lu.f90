! LU-like code: two COMMON blocks whose every plane is split over the threads again and again, with two
! different periods, and one tiny hot block; after the access structure of NPB LU (ICPP 2018 paper).
!
! Truth: cvar_   56 MiB, block-cyclic, period 16 MiB (one plane), 3.5 periods
!        cjac_   20 MiB, block-cyclic, period  5 MiB
!        cexact_ 520 bytes, read by all: small
! The main thread initialises everything, so first touch puts every page on its node.
!
! lu [iterations]        threads: OMP_NUM_THREADS
program lu
  implicit none
  integer, parameter :: rows = 2048
  integer, parameter :: vcols = 1024, vplanes = 4          ! 2048*1024*8 = 16 MiB a plane
  integer, parameter :: jcols = 320, jplanes = 4           ! 2048*320*8  =  5 MiB a plane
  integer, parameter :: vlast = 512                        ! columns of the last, half plane
  double precision :: v(rows, vcols*vplanes - vlast)
  double precision :: jac(rows, jcols*jplanes)
  double precision :: ce(13, 5)
  common /cvar/ v
  common /cjac/ jac
  common /cexact/ ce
  integer :: iterations, it, k
  character(len=16) :: arg
  iterations = 160
  if (command_argument_count() >= 1) then
    call get_command_argument(1, arg)
    read (arg, *) iterations
  end if
  call init()
  do it = 1, iterations
    do k = 1, vplanes
      call sweep_v(k)
    end do
    do k = 1, jplanes
      call sweep_jac(k)
    end do
  end do
  call check(iterations)
contains
  subroutine init()
    integer :: i, j
    do j = 1, 5
      do i = 1, 13
        ce(i, j) = 1.0d0/(i + 13*j)
      end do
    end do
    do j = 1, size(v, 2)
      do i = 1, rows
        v(i, j) = mod(i + j, 17)
      end do
    end do
    do j = 1, size(jac, 2)
      do i = 1, rows
        jac(i, j) = mod(i*3 + j, 13)
      end do
    end do
  end subroutine init

  subroutine sweep_v(plane)
    integer, intent(in) :: plane
    integer :: i, j, first
    first = (plane - 1)*vcols
    !$omp parallel do schedule(static) private(i)
    do j = first + 1, first + vcols
      if (j <= size(v, 2)) then
        do i = 2, rows
          v(i, j) = 0.5d0*v(i, j) + 0.25d0*v(i - 1, j) + ce(mod(i, 13) + 1, 1 + mod(j, 5))
        end do
      end if
    end do
    !$omp end parallel do
  end subroutine sweep_v

  subroutine sweep_jac(plane)
    integer, intent(in) :: plane
    integer :: i, j, first
    first = (plane - 1)*jcols
    !$omp parallel do schedule(static) private(i)
    do j = first + 1, first + jcols
      do i = 2, rows
        jac(i, j) = 0.75d0*jac(i, j) + 0.125d0*jac(i - 1, j) + ce(1 + mod(i, 13), 1)
      end do
    end do
    !$omp end parallel do
  end subroutine sweep_jac

  subroutine check(n)
    integer, intent(in) :: n
    double precision :: sv, sj
    integer :: i, j
    sv = 0
    do j = 1, size(v, 2)
      do i = 1, rows
        sv = sv + v(i, j)
      end do
    end do
    sj = 0
    do j = 1, size(jac, 2)
      do i = 1, rows
        sj = sj + jac(i, j)
      end do
    end do
    write (*, '(a,i0,a,es22.14,a,es22.14)') 'iterations ', n, '  cvar ', sv, '  cjac ', sj
  end subroutine check
end program lu
