! Call sites of Fortran: a module procedure and a procedure inside of it.
module solver
  implicit none
contains
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
    integer :: round, i
    a = 1
    do round = 1, 2
      do i = 1, size(a), 8
        a(i) = a(i) * 0.5 + round
      end do
    end do
  end subroutine
end module
program all_sites
  use solver
  implicit none
  real(8), allocatable :: a(:), b(:)
  call setup(a, b)
  call exercise(a)
  call exercise(b)
  if (sum(a) + sum(b) > 0) print '(a)', 'ok'
end program
