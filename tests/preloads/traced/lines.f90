! Two threads take turns with their sums, which are neighbours in an array.
module sums
  implicit none
  double precision, save :: total(512) = 1
end module

program lines
  use sums
  use omp_lib
  implicit none
  integer :: n
  !$omp parallel do ordered schedule(static, 1) num_threads(2)
  do n = 1, 2000
    !$omp ordered
    total(omp_get_thread_num() + 1) = total(omp_get_thread_num() + 1) + n
    !$omp end ordered
  end do
  print *, total(1), total(2)
end program
