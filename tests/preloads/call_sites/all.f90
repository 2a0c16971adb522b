! Call sites of Fortran: a module procedure and a procedure inside of it.
!
! all [reads and writes per object]: four threads share each object after the main thread initialised it.
module solver
  implicit none
  integer :: accesses = 0
contains
#ifdef PADDING
  subroutine padding()
    accesses = accesses + 1
  end subroutine
#endif
  subroutine setup(a, b)
    real(8), allocatable, intent(out) :: a(:), b(:)
    allocate(a(131072))
    call inner(b)
  contains
    subroutine inner(c)
      real(8), allocatable, intent(out) :: c(:)
      allocate(c(262144))
    end subroutine
  end subroutine
  subroutine exercise(a)
    real(8), intent(inout) :: a(:)
    integer :: done, i
    a = 1
    do done = 1, accesses, size(a) / 8
      !$omp parallel do schedule(static)
      do i = 1, size(a), 8
        a(i) = a(i) * 0.5 + done
      end do
    end do
  end subroutine
end module
program all_sites
  use solver
  implicit none
  real(8), allocatable :: a(:), b(:)
  character(len=16) :: argument
  if (command_argument_count() > 0) then
    call get_command_argument(1, argument)
    read (argument, *) accesses
  end if
#ifdef PADDING
  call padding()
#endif
  call setup(a, b)
  call exercise(a)
  call exercise(b)
  if (sum(a) + sum(b) > 0) print '(a)', 'ok'
end program
