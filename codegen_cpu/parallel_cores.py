"""On which cores the members of a team run: a part of the LLVM code of `codegen_cpu.parallel_dispatch`, which
says what `%at_FIELD` and the words in capitals stand for.

Some schedulers put a thread that has slept for a while on the core of the one that wakes it, though others
are idle, and take 10 milliseconds to see that it is busy. So members that have to be woken are kept off the
caller's core, unless the environment says where threads run (`parallel_runtime.binds_threads`) or somebody
has moved them since.
"""

from __future__ import annotations

MASK = 128  # bytes of a set of cores
MOST = 64  # members of a team that is kept off cores

# Where the system says which core a thread is on, and lets it be changed.
CORES = """
declare i32 @sched_getcpu()
declare i64 @pthread_self()
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare i32 @memcmp(ptr, ptr, i64)
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.umin.i32(i32, i32)

define internal void @register(ptr %team, i32 %number) {
entry:
  %at = sub i32 %number, 1
  %room = icmp ult i32 %at, MOST
  br i1 %room, label %here, label %over
here:
  %self = call i64 @pthread_self()
  %place = getelementptr i64, ptr %at_threads, i32 %at
  store atomic i64 %self, ptr %place monotonic, align 8
  %1 = atomicrmw add ptr %at_known, i64 1 release
  br label %over
over:
  ret void
}

; Of a team that is to be made, no thread is known; all may use the cores that this thread may.
define internal void @forget(ptr %team) {
entry:
  store atomic i64 0, ptr %at_known monotonic, align 8
  %avoided = load atomic i64, ptr %at_avoided monotonic, align 8
  %core = lshr i64 %avoided, 32  ; the runtime may take the same threads again
  %upper = shl i64 %core, 32
  store atomic i64 %upper, ptr %at_avoided monotonic, align 8
  %1 = call ptr @memset(ptr %at_threads, i32 0, i64 THREADS)
  %self = call i64 @pthread_self()
  %failed = call i32 @pthread_getaffinity_np(i64 %self, i64 MASK, ptr %at_mask)
  %good = icmp eq i32 %failed, 0
  %2 = call i64 @count(ptr %at_mask)
  %cores = select i1 %good, i64 %2, i64 0
  store i64 %cores, ptr %at_cores
  ret void
}

define internal i64 @count(ptr %mask) {
entry:
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after, %next ]
  %sum = phi i64 [ 0, %entry ], [ %more, %next ]
  %place = getelementptr i64, ptr %mask, i64 %at
  %word = load i64, ptr %place
  %ones = call i64 @llvm.ctpop.i64(i64 %word)
  %more = add i64 %sum, %ones
  %after = add i64 %at, 1
  %end = icmp eq i64 %after, WORDS
  br i1 %end, label %over, label %next
over:
  ret i64 %more
}

; A set of cores without one; `core` counts from 1, and 0 is none.
define internal void @without(ptr %into, ptr %mask, i64 %core) {
entry:
  %1 = call ptr @memcpy(ptr %into, ptr %mask, i64 MASK)
  %none = icmp eq i64 %core, 0
  br i1 %none, label %over, label %clear
clear:
  %number = sub i64 %core, 1
  %at = lshr i64 %number, 6
  %bit = and i64 %number, 63
  %place = getelementptr i64, ptr %into, i64 %at
  %word = load i64, ptr %place
  %one = shl i64 1, %bit
  %others = xor i64 %one, -1
  %left = and i64 %word, %others
  store i64 %left, ptr %place
  br label %over
over:
  ret void
}

; Keep the members off the core of this thread, or off none where there is not a core for each then. Not
; before all are known: where the others are left, nobody would know.
define internal void @keep_off(ptr %team) {
entry:
  %old = alloca [WORDS x i64]
  %new = alloca [WORDS x i64]
  %found = alloca [WORDS x i64]
  %roams = load i64, ptr %at_roams
  %may = icmp ne i64 %roams, 0
  br i1 %may, label %where, label %over
where:
  %core = call i32 @sched_getcpu()
  %inside = icmp ult i32 %core, BITS
  %formed = load atomic i64, ptr %at_formed monotonic, align 8
  %members = sub i64 %formed, 1
  %listed = call i64 @llvm.smin.i64(i64 %members, i64 MOST)
  %known = load atomic i64, ptr %at_known acquire, align 8
  %all = icmp eq i64 %known, %listed
  %can = and i1 %inside, %all
  br i1 %can, label %same, label %over
same:
  %number = zext i32 %core to i64
  %mine = add i64 %number, 1
  %cores = load i64, ptr %at_cores
  %most = call i64 @llvm.smin.i64(i64 %cores, i64 MOST)
  %enough = icmp sle i64 %formed, %most
  %avoided = select i1 %enough, i64 %mine, i64 0
  %upper = shl i64 %avoided, 32
  %now = or i64 %upper, %known
  %before = load atomic i64, ptr %at_avoided monotonic, align 8
  %equal = icmp eq i64 %now, %before
  br i1 %equal, label %over, label %change
change:
  store atomic i64 %now, ptr %at_avoided monotonic, align 8
  %last = lshr i64 %before, 32
  call void @without(ptr %old, ptr %at_mask, i64 %last)
  call void @without(ptr %new, ptr %at_mask, i64 %avoided)
  br label %next
next:
  %at = phi i64 [ 0, %change ], [ %after, %done ]
  %place = getelementptr i64, ptr %at_threads, i64 %at
  %thread = load atomic i64, ptr %place monotonic, align 8
  %there = icmp ne i64 %thread, 0
  br i1 %there, label %look, label %done
look:  ; it is where we left it, or new; or else somebody has moved it
  %failed = call i32 @pthread_getaffinity_np(i64 %thread, i64 MASK, ptr %found)
  %from_old = call i32 @memcmp(ptr %found, ptr %old, i64 MASK)
  %from_all = call i32 @memcmp(ptr %found, ptr %at_mask, i64 MASK)
  %other = call i32 @llvm.umin.i32(i32 %from_old, i32 %from_all)
  %strange = or i32 %failed, %other
  %ours = icmp eq i32 %strange, 0
  br i1 %ours, label %set, label %stop
set:
  %1 = call i32 @pthread_setaffinity_np(i64 %thread, i64 MASK, ptr %new)
  br label %done
stop:
  store i64 0, ptr %at_roams
  br label %over
done:
  %after = add i64 %at, 1
  %end = icmp eq i64 %after, MOST
  br i1 %end, label %over, label %next
over:
  ret void
}
"""

# Where it does not.
NO_CORES = """
define internal void @register(ptr %team, i32 %number) {
entry:
  ret void
}

define internal void @forget(ptr %team) {
entry:
  ret void
}

define internal void @keep_off(ptr %team) {
entry:
  ret void
}
"""
