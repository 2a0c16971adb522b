! Allocatable arrays of a module, each from a subroutine of its own, and two from one statement.
module fields
  real(8), allocatable :: rho(:), flux(:), left(:), right(:)
contains
  subroutine make_rho(n)
    integer, intent(in) :: n
    allocate(rho(n))
    rho = 1
  end subroutine
  subroutine make_flux(n)
    integer, intent(in) :: n
    allocate(flux(n))
    flux = 2
  end subroutine
  subroutine make_sides(n)
    integer, intent(in) :: n
    allocate(left(n), right(n))
    left = 3
    right = 4
  end subroutine
end module
program arrays
  use fields
  integer, parameter :: n = 262144
  integer :: r
  call make_rho(n)
  call make_flux(n)
  call make_sides(n)
  do r = 1, 150
    rho = rho * 0.5d0 + flux
    flux = flux * 0.5d0 + left
    left = left * 0.5d0 + right
    right = right * 0.5d0 + rho
  end do
  print *, sum(rho) + sum(flux) + sum(left) + sum(right)
end program
