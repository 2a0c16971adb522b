! Kernel of benches/trace/run: prints the seconds of a stencil of five points.
program heat
  use omp_lib
  implicit none
  integer, parameter :: n = 1500
  double precision, allocatable :: a(:,:), b(:,:)
  double precision :: t
  integer :: i, j, r
  allocate(a(n,n), b(n,n))
  a = 1d0; a(n/2,:) = 100d0; b = a
  t = omp_get_wtime()
  do r = 1, 100
    !$omp parallel do private(i)
    do j = 2, n - 1
      do i = 2, n - 1
        b(i,j) = 0.25d0 * (a(i-1,j) + a(i+1,j) + a(i,j-1) + a(i,j+1))
      end do
    end do
    !$omp parallel do private(i)
    do j = 2, n - 1
      do i = 2, n - 1
        a(i,j) = b(i,j)
      end do
    end do
  end do
  write (0, '(f0.6, 1x, f0.6)') omp_get_wtime() - t, a(n/3,n/3)
end program
