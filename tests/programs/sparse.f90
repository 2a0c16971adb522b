! Sparse solver whose whole state is one COMMON block of eight arrays, as old codes keep it.
!
! Truth: csr_.val, .col, .ptr   matrix, its column indices and row pointers: sliced by rows, one block for each thread
!        csr_.x                 vector that all threads read at random columns
!        csr_.y, .r, .d         vectors sliced by rows
!        csr_.hits              counters of columns, read by all at random
! Between them lie two integers and a flag, so that no array but the first begins on a page. The main thread initialises
! everything, so first touch puts every page on its node.
!
! sparse [iterations [maps]]        threads: OMP_NUM_THREADS; maps: prints where its pages are, by the kernel
program sparse
  implicit none
  integer, parameter :: rows = 160000, width = 12, entries = rows*width
  double precision :: val(entries), x(rows), y(rows), r(rows), d(rows)
  integer :: col(entries), ptr(rows + 1), hits(2*rows), n, m
  logical :: ready
  common /csr/ val, n, m, col, ptr, ready, x, y, r, d, hits
  integer :: iterations, it
  character(len=16) :: arg
  iterations = 100
  if (command_argument_count() >= 1) then
    call get_command_argument(1, arg)
    read (arg, *) iterations
  end if
  call init()
  do it = 1, iterations
    call multiply()
    call update()
  end do
  print '(a,es22.14)', 'sum ', sum(x) + sum(r)
  if (command_argument_count() >= 2) call show()
contains
  subroutine init()
    integer :: i, k
    integer(8) :: state
    n = rows
    m = entries
    ready = .true.
    state = 88172645463325252_8
    do i = 1, entries
      ! xorshift64 (Marsaglia 2003)
      state = ieor(state, ishft(state, 13))
      state = ieor(state, ishft(state, -7))
      state = ieor(state, ishft(state, 17))
      col(i) = 1 + int(modulo(state, int(rows, 8)))
      val(i) = 1.0d0/(width + modulo(i, 7))
    end do
    do i = 1, rows + 1
      ptr(i) = (i - 1)*width + 1
    end do
    do i = 1, rows
      x(i) = modulo(i, 13)
      y(i) = 0
      r(i) = 1
      d(i) = 0.5d0
    end do
    do k = 1, 2*rows
      hits(k) = modulo(k, 5)
    end do
  end subroutine init

  ! One loop for each array: under an emulator samples fall on the ends of loops only.
  subroutine multiply()
    integer :: i, k, c, h
    double precision :: s, w
    !$omp parallel do schedule(static) private(k, c, h, s, w)
    do i = 1, n
      w = 0
      do k = ptr(i), ptr(i + 1) - 1
        w = w + val(k)
      end do
      c = i
      do k = ptr(i), ptr(i + 1) - 1
        c = ieor(c, col(k))
      end do
      s = 0
      do k = 1, width
        s = s + x(1 + modulo(c*k, rows))
      end do
      h = 0
      do k = 1, width
        h = h + hits(1 + modulo(c*(k + 7), 2*rows))
      end do
      y(i) = s*w + h
    end do
  end subroutine multiply

  subroutine update()
    integer :: i
    !$omp parallel do schedule(static)
    do i = 1, n
      r(i) = 0.5d0*y(i) + 0.25d0*r(i)
    end do
    !$omp parallel do schedule(static)
    do i = 1, n
      d(i) = 0.5d0 + 0.25d0*d(i)
    end do
  end subroutine update

  ! Addresses and sizes of the arrays, then what the kernel says of every mapping.
  subroutine show()
    character(len=512) :: line
    integer :: status
    print '(a,z16,1x,i0)', 'array val ', loc(val), sizeof(val)
    print '(a,z16,1x,i0)', 'array col ', loc(col), sizeof(col)
    print '(a,z16,1x,i0)', 'array ptr ', loc(ptr), sizeof(ptr)
    print '(a,z16,1x,i0)', 'array x ', loc(x), sizeof(x)
    print '(a,z16,1x,i0)', 'array y ', loc(y), sizeof(y)
    print '(a,z16,1x,i0)', 'array r ', loc(r), sizeof(r)
    print '(a,z16,1x,i0)', 'array d ', loc(d), sizeof(d)
    print '(a,z16,1x,i0)', 'array hits ', loc(hits), sizeof(hits)
    open (unit=7, file='/proc/self/numa_maps', action='read')
    do
      read (7, '(a)', iostat=status) line
      if (status /= 0) exit
      print '(a)', 'maps '//trim(line)
    end do
  end subroutine show
end program sparse
