# Commands for gdb at a server under Skein. All threads of a process run on one kernel thread, its carrier; the others' contexts are in the arena:
# a stack pointer, at which the callee-saved registers are, and an FS base. SKEIN says where; it was set by `skein replay`.

import os
import struct

LIVES = {1: "has the turn", 2: "can run", 3: "waits", 5: "is stopped"}
# What `leave` of the runtime pushes, from the stack pointer upwards, behind eight bytes of floating-point control words.
PUSHED = ["r15", "r14", "r13", "r12", "rbx", "rbp", "rip"]


def read(at, layout):
    memory = gdb.selected_inferior().read_memory(at, struct.calcsize(layout))
    return struct.unpack(layout, bytes(memory))[0]


class Context:
    """A thread, as the arena has it."""

    def __init__(self, number):
        at = SKEIN["threads"] + (number - 1) * SKEIN["stride"]
        self.number = number
        self.life = read(at + SKEIN["life"], "<I")
        self.sp = read(at + SKEIN["sp"], "<Q")
        self.fs = read(at + SKEIN["fs"], "<Q")
        self.tid = read(at + SKEIN["tid"], "<I")
        self.pinned = read(at + SKEIN["pinned"], "<B") != 0
        process = read(at + SKEIN["process"], "<I")
        self.pid = 0
        if process:
            self.pid = read(SKEIN["processes"] + (process - 1) * SKEIN["process_stride"] + SKEIN["pid"], "<I")
        self.name = read(at + SKEIN["name"], "<16s").split(b"\0")[0].decode(errors="replace")

    def __str__(self):
        return "thread %d of process %d (%s): %s" % (self.number, self.pid, self.name, LIVES[self.life])


def contexts():
    found = []
    for number in range(1, SKEIN["count"] + 1):
        try:
            context = Context(number)
        except gdb.MemoryError:
            break
        if context.life in LIVES and context.pid:
            found.append(context)
    return found


def number_in_server(thread):
    """A kernel thread's number as the server sees it."""
    with open("/proc/%d/task/%d/status" % (SKEIN["host"], thread.ptid[1])) as status:
        for line in status:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return thread.ptid[1]


def kernel_thread(tid):
    for thread in gdb.selected_inferior().threads():
        if thread.is_valid() and number_in_server(thread) == tid:
            return thread
    raise gdb.GdbError("the kernel has no thread %d of this process" % tid)


def register(name):
    value = int(gdb.newest_frame().read_register(name))
    return value % 2**64


def is_own(address):
    """Whether it is of the runtime: its library, or one of its stacks."""
    return address >> SKEIN["place_bits"] == SKEIN["place"]


class In:
    """Within it the selected frame is the newest of a thread."""

    def __init__(self, context):
        self.context = context
        self.saved = {}

    def __enter__(self):
        context = self.context
        if context.pid != SKEIN["here"]:
            raise gdb.GdbError(
                "it is in process %d, and gdb is attached to process %d: give --pid %d"
                % (context.pid, SKEIN["here"], context.pid)
            )
        self.before = gdb.selected_thread()
        if context.pinned:
            kernel_thread(context.tid).switch()
            return self
        # The carrier is the process's first kernel thread.
        kernel_thread(SKEIN["here"]).switch()
        sp = register("rsp")
        idle = is_own(sp) and sp < SKEIN["slots"]
        if register("fs_base") == context.fs and not idle:
            return self
        values = {"rsp": context.sp + 64, "fs_base": context.fs, "orig_rax": 2**64 - 1}
        for place, name in enumerate(PUSHED):
            values[name] = read(context.sp + 8 + 8 * place, "<Q")
        for name in values:
            self.saved[name] = register(name)
        try:
            self.write(values)
        except BaseException:
            self.write(self.saved)
            raise
        return self

    def write(self, values):
        for name, value in values.items():
            gdb.execute("set $%s = %d" % (name, value - 2**64 if name == "orig_rax" and value >> 63 else value))

    def __exit__(self, *_):
        if self.saved:
            self.write(self.saved)
        if self.before is not None and self.before.is_valid():
            self.before.switch()


def innermost():
    """The newest frame outside of the runtime."""
    frame = gdb.newest_frame()
    while frame is not None and is_own(frame.pc()):
        frame = frame.older()
    return frame


def where():
    try:
        frame = innermost()
    except gdb.error as error:
        return str(error)
    if frame is None:
        return "?"
    name = frame.name()
    return "in %s" % name if name else "at %#x" % frame.pc()


class Skein(gdb.Command):
    """The server under Skein: skein threads, skein bt, skein next."""

    def __init__(self):
        super().__init__("skein", gdb.COMMAND_USER, prefix=True)


class Threads(gdb.Command):
    """List the server's threads, and where each is: skein threads"""

    def __init__(self):
        super().__init__("skein threads", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        for context in contexts():
            if context.pid != SKEIN["here"]:
                print(context)
                continue
            with In(context):
                place = where()
            print("%s %s" % (context, place))


class Backtrace(gdb.Command):
    """Show a thread's frames outside of the runtime: skein bt [N|all]; without a number those of the one that runs"""

    def __init__(self):
        super().__init__("skein bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        here = [context for context in contexts() if context.pid == SKEIN["here"]]
        if not words:
            wanted = [context for context in here if context.life == 1] or here[:1]
        elif words == ["all"]:
            wanted = here
        else:
            wanted = [context for context in contexts() if str(context.number) == words[0]]
            if not wanted:
                raise gdb.GdbError("there is no thread %s: see 'skein threads'" % words[0])
        for context in wanted:
            print(context)
            with In(context):
                gdb.execute("backtrace")


class Next(gdb.Command):
    """Let the server take entries of the log, until it has executed them or crashes: skein next [N|all]"""

    def __init__(self):
        super().__init__("skein next", gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument) or ["1"]
        if words != ["all"] and not words[0].isdecimal():
            raise gdb.GdbError("expected a number of entries, or all")
        with open(SKEIN["asks"], "w") as asks:
            asks.write(words[0] + "\n")
        gdb.execute("continue")


class Crash(gdb.Function):
    """Whether the instruction at $pc is none of those that fault by design, which the runtime answers: rdtsc, rdtscp, cpuid"""

    def __init__(self):
        super().__init__("_skein_crash")

    def invoke(self):
        try:
            code = bytes(gdb.selected_inferior().read_memory(gdb.newest_frame().pc(), 3))
        except gdb.MemoryError:
            # A jump to nowhere.
            return 1
        return int(not code.startswith((b"\x0f\x31", b"\x0f\x01\xf9", b"\x0f\xa2")))


class ServersOwn:
    """Leaves out the frames of the runtime: `bt -no-filters` shows them."""

    def __init__(self):
        self.name = "skein"
        self.priority = 100
        self.enabled = True
        gdb.frame_filters[self.name] = self

    def filter(self, frames):
        return (frame for frame in frames if not is_own(frame.inferior_frame().pc()))


Skein()
Threads()
Backtrace()
Next()
Crash()
ServersOwn()
# A crash stops the server before the runtime sees it.
gdb.execute("catch signal SIGSEGV")
gdb.execute("condition $bpnum $_skein_crash()")
