! Truth: each of four threads writes its quarter of 40000 numbers 11 times.
module numbers
  real(8), save :: values(40000)
end module

program quarters
  use numbers
  implicit none
  integer :: thread, round, i
  !$omp parallel do num_threads(4) schedule(static, 1) private(round, i)
  do thread = 0, 3
    do round = 1, 11
      do i = thread * 10000 + 1, thread * 10000 + 10000
        values(i) = round
      end do
    end do
  end do
end program
