! One array, used by one loop in slabs of planes and by another in rows of every plane, both in one parallel region:
! the compiler makes one function of the region.
!
! Truth: the first loop gives each thread one contiguous part (block); the second splits every plane of 256 KiB over
! the threads (block-cyclic). Initialised by the main thread. Argument: steps.
module field
  implicit none
  integer, parameter :: columns = 512, rows = 64, planes = 64
  real(8), save :: u(columns, rows, planes)
end module field

program main
  use field
  implicit none
  integer :: i, j, k, s, steps
  character(len=16) :: word
  steps = 100
  if (command_argument_count() > 0) then
    call get_command_argument(1, word)
    read (word, *) steps
  end if
  do k = 1, planes
    do j = 1, rows
      do i = 1, columns
        u(i, j, k) = i + j + k
      end do
    end do
  end do
  call solve(steps)
  print '(f12.3)', u(columns, rows, planes)
contains
  subroutine solve(steps)
    integer, intent(in) :: steps
    integer :: i, j, k, s
    !$omp parallel private(i, j, k, s)
    do s = 1, steps
      !$omp do schedule(static)
      do k = 1, planes
        do j = 1, rows
          do i = 1, columns
            u(i, j, k) = u(i, j, k) * 0.999d0 + 0.001d0
          end do
        end do
      end do
      !$omp end do
      !$omp do schedule(static)
      do j = 1, rows
        do k = 1, planes
          do i = 1, columns
            u(i, j, k) = u(i, j, k) * 1.001d0 - 0.001d0
          end do
        end do
      end do
      !$omp end do
    end do
    !$omp end parallel
  end subroutine solve
end program main
