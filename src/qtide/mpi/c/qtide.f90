! libqtide for Fortran: MPI programs that grow and shrink while they run. See qtide.h for what each
! procedure does; names, arguments and results are the same.
!
! Arrays are spread over the ranks along their last dimension: a "row" of qtide.h is a column here.
! Numbers of rows and indices begin with 0, as in C.
module qtide
  use, intrinsic :: iso_c_binding
  implicit none
  private :: c_text

  integer(c_int), parameter :: QTIDE_LOST = -1, QTIDE_ERROR = -2
  integer(c_int), parameter :: QTIDE_MOVE = 0, QTIDE_KEEP = 1, QTIDE_DROP = 2
  integer, parameter :: QTIDE_TASK_ID = 80

  type, bind(c) :: qtide_array
    type(c_ptr) :: local              ! use c_f_pointer(array%local, x, [..., int(array%count)])
    integer(c_int64_t) :: count, first, rows, block
    integer(c_size_t) :: row_bytes
    integer(c_int) :: restored
  end type

  interface
    integer(c_int) function qtide_init(least, preferred, most) bind(c)
      import :: c_int
      integer(c_int), value :: least, preferred, most
    end function
    integer(c_int) function qtide_begin() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_finalize() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_comm() bind(c, name="qtide_comm_f")
      import :: c_int
    end function
    integer(c_int) function qtide_rank() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_size() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_newcomer() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_is_lost(code) bind(c)
      import :: c_int
      integer(c_int), value :: code
    end function
    integer(c_int) function qtide_cancel() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_save() bind(c)
      import :: c_int
    end function
    integer(c_int) function qtide_recover() bind(c)
      import :: c_int
    end function
    integer(c_int64_t) function qtide_row(array, index) bind(c)
      import :: c_int64_t, qtide_array
      type(qtide_array), intent(in) :: array
      integer(c_int64_t), value :: index
    end function
    integer(c_int) function qtide_on_change(callback, extra) bind(c)
      import :: c_int, c_funptr, c_ptr
      type(c_funptr), value :: callback
      type(c_ptr), value :: extra
    end function
  end interface

  interface  ! C's own forms of those below
    integer(c_int) function c_state(name, buffer, bytes) bind(c, name="qtide_state")
      import :: c_int, c_char, c_ptr, c_size_t
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: bytes
    end function
    type(c_ptr) function c_distributed(name, rows, row_bytes, block) &
        bind(c, name="qtide_distributed")
      import :: c_ptr, c_char, c_int64_t, c_size_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: rows, block
      integer(c_size_t), value :: row_bytes
    end function
    integer(c_int) function c_expand(to, least, wait, file, line) bind(c, name="qtide_expand_at")
      import :: c_int, c_double, c_char
      integer(c_int), value :: to, least, line
      real(c_double), value :: wait
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function c_shrink(to, file, line) bind(c, name="qtide_shrink_at")
      import :: c_int, c_char
      integer(c_int), value :: to, line
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function c_check(file, line) bind(c, name="qtide_check_at")
      import :: c_int, c_char
      integer(c_int), value :: line
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function c_policy(name) bind(c, name="qtide_policy")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_phase(name, seconds) bind(c, name="qtide_phase")
      import :: c_int, c_char, c_double
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: seconds
    end function
    integer(c_int) function c_submit(device, format, text, shots, task) &
        bind(c, name="qtide_qpu_submit")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: device(*), format(*), text(*)
      integer(c_int), value :: shots
      character(kind=c_char), intent(out) :: task(*)
    end function
    integer(c_int) function c_poll(task) bind(c, name="qtide_qpu_poll")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: task(*)
    end function
    integer(c_int) function c_fetch(task, wait, text) bind(c, name="qtide_qpu_fetch")
      import :: c_int, c_char, c_double, c_ptr
      character(kind=c_char), intent(in) :: task(*)
      real(c_double), value :: wait
      type(c_ptr), intent(out) :: text
    end function
    integer(c_int) function c_withdraw(task) bind(c, name="qtide_qpu_cancel")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: task(*)
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import :: c_size_t, c_ptr
      type(c_ptr), value :: text
    end function
    subroutine c_free(memory) bind(c, name="free")
      import :: c_ptr
      type(c_ptr), value :: memory
    end subroutine
  end interface
  private :: c_state, c_distributed, c_expand, c_shrink, c_check, c_policy, c_phase
  private :: c_submit, c_poll, c_fetch, c_withdraw, c_strlen, c_free

contains

  pure function c_text(text) result(terminated)
    character(*), intent(in) :: text
    character(len=:), allocatable :: terminated
    terminated = trim(text) // c_null_char
  end function

  ! qtide_state("step", c_loc(step), c_sizeof(step)): the variable needs the attribute target
  integer(c_int) function qtide_state(name, buffer, bytes)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: bytes
    qtide_state = c_state(c_text(name), buffer, bytes)
  end function

  function qtide_distributed(name, rows, row_bytes, block) result(array)
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: rows
    integer(c_size_t), intent(in) :: row_bytes
    integer(c_int64_t), intent(in), optional :: block
    type(qtide_array), pointer :: array
    type(c_ptr) :: found
    integer(c_int64_t) :: turns
    turns = 0
    if (present(block)) turns = block
    found = c_distributed(c_text(name), rows, row_bytes, turns)
    nullify(array)
    if (c_associated(found)) call c_f_pointer(found, array)
  end function

  integer(c_int) function qtide_expand(to, least, wait)
    integer, intent(in) :: to, least
    real(c_double), intent(in) :: wait
    qtide_expand = c_expand(int(to, c_int), int(least, c_int), wait, c_text(""), 0_c_int)
  end function

  integer(c_int) function qtide_shrink(to)
    integer, intent(in) :: to
    qtide_shrink = c_shrink(int(to, c_int), c_text(""), 0_c_int)
  end function

  integer(c_int) function qtide_minimise()
    qtide_minimise = c_shrink(0_c_int, c_text(""), 0_c_int)
  end function

  integer(c_int) function qtide_check()
    qtide_check = c_check(c_text(""), 0_c_int)
  end function

  integer(c_int) function qtide_policy(name)
    character(*), intent(in) :: name
    qtide_policy = c_policy(c_text(name))
  end function

  integer(c_int) function qtide_phase(name, seconds)
    character(*), intent(in) :: name
    real(c_double), intent(in) :: seconds
    qtide_phase = c_phase(c_text(name), seconds)
  end function

  integer(c_int) function qtide_qpu_submit(device, format, text, shots, task)
    character(*), intent(in) :: device, format, text
    integer, intent(in) :: shots
    character(QTIDE_TASK_ID), intent(out) :: task
    integer :: last
    qtide_qpu_submit = c_submit(c_text(device), c_text(format), c_text(text), int(shots, c_int), task)
    last = index(task, c_null_char)
    if (last > 0) task(last:) = " "
  end function

  integer(c_int) function qtide_qpu_poll(task)
    character(*), intent(in) :: task
    qtide_qpu_poll = c_poll(c_text(task))
  end function

  integer(c_int) function qtide_qpu_fetch(task, wait, text)
    character(*), intent(in) :: task
    real(c_double), intent(in) :: wait
    character(len=:), allocatable, intent(out) :: text
    character(kind=c_char), pointer :: bytes(:)
    type(c_ptr) :: found
    integer :: i
    qtide_qpu_fetch = c_fetch(c_text(task), wait, found)
    if (qtide_qpu_fetch /= 1) return
    call c_f_pointer(found, bytes, [c_strlen(found)])
    allocate(character(size(bytes)) :: text)
    do i = 1, size(bytes)
      text(i:i) = bytes(i)
    end do
    call c_free(found)
  end function

  integer(c_int) function qtide_qpu_cancel(task)
    character(*), intent(in) :: task
    qtide_qpu_cancel = c_withdraw(c_text(task))
  end function
end module
