! Heat spreads on a plate whose columns are spread over the ranks, on a number of nodes that changes:
!
!   heat STEPS [SIZE ...]      e.g. heat 60 1 3 2: ten steps on one node, ten on three, and so on
program heat
  use, intrinsic :: iso_c_binding
  use mpi
  use qtide
  implicit none
  integer, parameter :: rows = 64, columns = 96, every = 10, most = 3
  integer(c_int), target :: step
  integer :: steps, code, to, now, i, j
  integer(c_int64_t) :: mine, total
  type(qtide_array), pointer :: plate
  real(c_double), pointer :: x(:, :)

  steps = argument(1, 60)
  step = 0
  if (qtide_init(1, most, most) /= 0) stop 1
  code = qtide_state("step", c_loc(step), c_sizeof(step))
  plate => qtide_distributed("plate", int(columns, c_int64_t), int(8 * rows, c_size_t))
  call look()
  if (plate%restored == 0) then
    do j = 1, size(x, 2)
      do i = 1, rows
        x(i, j) = mod((plate%first + j - 1) * 31, 97_c_int64_t) + mod((i - 1) * 17, 89)
      end do
    end do
  end if
  code = qtide_begin()
  do while (step < steps)
    to = qtide_size()
    if (command_argument_count() > 1) &
      to = argument(2 + mod(step / every, command_argument_count() - 1), 1)
    if (to >= qtide_size()) then
      now = qtide_expand(to, 0, 30d0)
    else
      now = qtide_shrink(to)
    end if
    call look()
    if (now /= QTIDE_LOST) code = exchanged()
    if (now == QTIDE_LOST .or. code /= MPI_SUCCESS) then
      if (qtide_recover() < 0) stop 1  ! goes back to what was saved last
      call look()
      cycle
    end if
    step = step + 1
    if (mod(step, every) == 0) code = qtide_save()
  end do
  mine = 0
  do j = 1, size(x, 2)
    do i = 1, rows
      mine = mine + transfer(x(i, j), mine) * (2 * ((plate%first + j - 1) * rows + i - 1) + 1)
    end do
  end do
  call MPI_Allreduce(mine, total, 1, MPI_INTEGER8, MPI_SUM, qtide_comm(), code)
  if (qtide_rank() == 0) print "(i0, ' steps, checksum ', z16.16)", step, total
  if (qtide_finalize() /= 0) stop 1

contains

  ! This rank's columns; they are somewhere else after every change.
  subroutine look()
    call c_f_pointer(plate%local, x, [rows, int(plate%count)])
  end subroutine

  ! One step of the stencil; the columns of the neighbours are fetched.
  integer function exchanged() result(code)
    real(c_double) :: left(rows), right(rows), next(rows, size(x, 2)), west, east, north, south
    integer :: last, up, down
    last = size(x, 2)
    up = merge(qtide_rank() - 1, MPI_PROC_NULL, qtide_rank() > 0)
    down = merge(qtide_rank() + 1, MPI_PROC_NULL, qtide_rank() < qtide_size() - 1)
    left = 0
    right = 0
    call MPI_Sendrecv(x(:, 1), rows, MPI_DOUBLE_PRECISION, up, 0, right, rows, &
      MPI_DOUBLE_PRECISION, down, 0, qtide_comm(), MPI_STATUS_IGNORE, code)
    if (code /= MPI_SUCCESS) return
    call MPI_Sendrecv(x(:, last), rows, MPI_DOUBLE_PRECISION, down, 1, left, rows, &
      MPI_DOUBLE_PRECISION, up, 1, qtide_comm(), MPI_STATUS_IGNORE, code)
    if (code /= MPI_SUCCESS) return
    do j = 1, last
      do i = 1, rows
        west = merge(left(i), x(i, max(j - 1, 1)), j == 1)
        east = merge(right(i), x(i, min(j + 1, last)), j == last)
        north = merge(0d0, x(max(i - 1, 1), j), i == 1)
        south = merge(0d0, x(min(i + 1, rows), j), i == rows)
        next(i, j) = x(i, j) + 0.2d0 * (west + east + north + south - 4 * x(i, j))
      end do
    end do
    x = next
  end function

  integer function argument(number, otherwise)
    integer, intent(in) :: number, otherwise
    character(20) :: word
    argument = otherwise
    call get_command_argument(number, word)
    if (len_trim(word) > 0) read (word, *) argument
  end function
end program
