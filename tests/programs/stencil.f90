! 7-point stencil on allocatable arrays, planes split over the threads.
!
! Truth: a, b  (two call sites in `stencil`'s main program, 32 MiB each): block, halo planes read by the neighbour.
! The main thread initialises both.
!
! stencil [iterations]   threads: OMP_NUM_THREADS
program stencil
  implicit none
  integer, parameter :: n = 128, nz = 256                  ! 128*128*256*8 = 32 MiB
  double precision, allocatable :: a(:, :, :), b(:, :, :)
  integer :: iterations, it
  character(len=16) :: arg
  iterations = 240
  if (command_argument_count() >= 1) then
    call get_command_argument(1, arg)
    read (arg, *) iterations
  end if
  allocate (a(n, n, nz))
  allocate (b(n, n, nz))
  call init(a, b)
  do it = 1, iterations
    call step(a, b)
    call step(b, a)
  end do
  write (*, '(a,i0,a,es22.14)') 'iterations ', iterations, '  centre ', a(n/2, n/2, nz/2)
  deallocate (a, b)
contains
  subroutine init(x, y)
    double precision, intent(out) :: x(:, :, :), y(:, :, :)
    integer :: i, j, k
    do k = 1, size(x, 3)
      do j = 1, size(x, 2)
        do i = 1, size(x, 1)
          x(i, j, k) = mod(i + 2*j + 3*k, 19)
          y(i, j, k) = 0
        end do
      end do
    end do
  end subroutine init

  subroutine step(src, dst)
    double precision, intent(in) :: src(n, n, nz)
    double precision, intent(inout) :: dst(n, n, nz)
    integer :: i, j, k
    !$omp parallel do schedule(static) private(i, j)
    do k = 2, nz - 1
      do j = 2, n - 1
        do i = 2, n - 1
          dst(i, j, k) = 0.4d0*src(i, j, k) + 0.1d0*(src(i - 1, j, k) + src(i + 1, j, k) + src(i, j - 1, k) &
                         + src(i, j + 1, k) + src(i, j, k - 1) + src(i, j, k + 1))
        end do
      end do
    end do
    !$omp end parallel do
  end subroutine step
end program stencil
