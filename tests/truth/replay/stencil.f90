! The 7-point stencil of kernels.c in Fortran. Argument: seconds to run.
module kernel
contains
  subroutine step(a, b, s)
    integer, intent(in) :: s
    real(8), intent(out) :: a(s, s, s)
    real(8), intent(in) :: b(s, s, s)
    integer :: i, j, k
    !$omp parallel do private(i, j) schedule(static)
    do k = 2, s - 1
      do j = 2, s - 1
        do i = 2, s - 1
          a(i, j, k) = 0.4d0 * b(i, j, k) + 0.1d0 * (b(i - 1, j, k) + b(i + 1, j, k) &
            + b(i, j - 1, k) + b(i, j + 1, k) + b(i, j, k - 1) + b(i, j, k + 1))
        end do
      end do
    end do
    !$omp end parallel do
  end subroutine
end module

program stencil
  use kernel
  use iso_c_binding
  use omp_lib
  implicit none
  integer, parameter :: s = 130
  interface
    integer(c_int) function gettid() bind(c)
      import c_int
    end function
  end interface
  real(8), allocatable, target :: a(:, :, :), b(:, :, :)
  character(16) :: argument
  integer(8) :: base, from, to, plane
  integer :: t, threads
  real(8) :: seconds, stop_at
  call get_command_argument(1, argument)
  read (argument, *) seconds
  allocate (a(s, s, s), b(s, s, s))
  a = 0
  b = 1
  base = transfer(c_loc(a), base)
  plane = 8_8 * s * s
  print '(a,i0,1x,i0)', 'object a ', base, plane * s
  print '(a,i0,1x,i0)', 'object b ', transfer(c_loc(b), base), plane * s
  threads = omp_get_max_threads()
  !$omp parallel do ordered schedule(static, 1) private(from, to)
  do t = 0, threads - 1
    from = 1 + (s - 2) * t / threads
    to = 1 + (s - 2) * (t + 1) / threads
    !$omp ordered
    print '(a,i0,1x,i0,1x,i0)', 'slice a ', gettid(), base + from * plane, (to - from) * plane
    !$omp end ordered
  end do
  print '(a)', 'ready'
  flush (6)
  read (*, *) argument
  stop_at = omp_get_wtime() + seconds
  do while (omp_get_wtime() < stop_at)
    call step(a, b, s)
  end do
end program
