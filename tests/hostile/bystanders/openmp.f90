! A parallel loop with allocations in every thread.
program openmp
  implicit none
  integer :: i
  real(8) :: total
  real(8), allocatable :: row(:)
  total = 0
  !$omp parallel do private(row) reduction(+:total) num_threads(4)
  do i = 1, 4000
    allocate(row(1000 + mod(i, 1000)))
    row = mod(i, 7)
    total = total + sum(row)
    deallocate(row)
  end do
  print '(f0.0)', total
end program
