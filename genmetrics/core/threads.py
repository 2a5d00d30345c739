"""How many CPU cores mathematics uses, and threads that use one each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from genmetrics.core.device import cores


def all_threads() -> int:
    """Return the number of threads of a decision: one a core that this process may use.

    Whatever OMP_NUM_THREADS says, because the last bits of a result depend on this number: one
    environment must not decide otherwise than the next. Fewer cores, as of a job or by ``taskset``,
    are fewer threads.
    """
    return cores()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use ``count`` threads for torch and the BLAS of NumPy and SciPy inside the block.

    Eigenvalues and singular values differ in their last bits between numbers of threads, so this
    is also what makes a decision of one rank of several equal that of a single process.
    """
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def single_threaded(count: int, name: str) -> ThreadPoolExecutor:
    """Return a pool of ``count`` threads in each of which torch computes with one thread.

    Work that is cut into pieces is done faster by such threads than piece after piece by all of
    them: nothing waits at barriers, which is worst where other programs share the cores. And no
    number depends on how many there are.
    """
    import torch

    # asked before any of ours exists: a thread that asks for the first time gets what the last set
    own = torch.get_num_threads()
    met = threading.Barrier(count + 1)

    def prepare() -> None:
        torch.get_num_threads()  # the first question of a thread sets its number; so before ours
        torch.set_num_threads(1)
        with suppress(threading.BrokenBarrierError):
            met.wait()

    pool = ThreadPoolExecutor(count, name, initializer=prepare)
    try:
        for _ in range(count):
            pool.submit(int)  # starts a thread, because none is idle before all have met
        met.wait()
    except BaseException:
        met.abort()  # where the system gives no more threads, those there are would wait for ever
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        # what a thread sets for itself is also what threads of others, started later, begin with
        torch.set_num_threads(own)
    return pool
