program lines
  implicit none
  real(8), allocatable :: a(:), b(:, :)
  allocate(a(25600))            ! line 4: 200 KiB
  allocate(b(128, 100))         ! line 5: 100 KiB
  a = 1
  b = 2
  if (sum(a) + sum(b) > 0) print '(a)', 'ok'
end program
