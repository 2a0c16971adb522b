! 2-D tiles: threads in a grid of 2 x T/2, each with a rectangle of the array.
!
! Truth: grid_ (COMMON, 1024 x 1024 doubles, 8 MiB): a column of the array is 8 KiB, its upper half of one thread, its
!        lower half of another, so pages alternate between two threads: period 2 pages inside, T/2 blocks of columns.
! The main thread initialises it.
!
! tiles [iterations]   threads: OMP_NUM_THREADS (even); says `object grid ADDRESS BYTES` on stderr
program tiles
  use omp_lib
  use iso_c_binding
  use iso_fortran_env, only: error_unit
  implicit none
  integer, parameter :: n = 1024
  double precision, target :: grid(n, n)
  common /grid/ grid
  integer :: iterations, i, j
  character(len=16) :: arg
  iterations = 300
  if (command_argument_count() >= 1) then
    call get_command_argument(1, arg)
    read (arg, *) iterations
  end if
  do j = 1, n
    do i = 1, n
      grid(i, j) = mod(i + 2*j, 23)
    end do
  end do
  write (error_unit, '(a,i0,a,i0)') 'object grid ', transfer(c_loc(grid), 0_c_intptr_t), ' ', 8*n*n
  call sweep(iterations)
  write (*, '(a,i0,a,es22.14)') 'iterations ', iterations, '  sum ', sum(grid)
contains
  subroutine sweep(times)
    integer, intent(in) :: times
    integer :: it, i, j, me, across, rows, columns, top, first
    !$omp parallel private(it, i, j, me, across, rows, columns, top, first)
    me = omp_get_thread_num()
    across = max(1, omp_get_num_threads()/2)
    rows = n/min(2, omp_get_num_threads())
    columns = n/across
    top = (me/across)*rows
    first = mod(me, across)*columns
    do it = 1, times
      do j = first + 1, first + columns
        do i = top + 1, top + rows
          grid(i, j) = 0.75d0*grid(i, j) + 0.25d0*mod(i + j, 5)
        end do
      end do
      !$omp barrier
    end do
    !$omp end parallel
  end subroutine sweep
end program tiles
