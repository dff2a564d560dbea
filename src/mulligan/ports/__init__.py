"""The Protocols between the parts: what an engine asks of a store, an executor and a clock, and the data they share."""

from __future__ import annotations

from mulligan.core.state.scope import Evaluator as Evaluator
from mulligan.ports.executor import Clock as Clock
from mulligan.ports.executor import EngineExecutor as EngineExecutor
from mulligan.ports.executor import Executor as Executor
from mulligan.ports.executor import TaskCapacity as TaskCapacity
from mulligan.ports.executor import TaskRunner as TaskRunner
from mulligan.ports.fault_points import FAULT_POINTS as FAULT_POINTS
from mulligan.ports.fault_points import fault_listeners as fault_listeners
from mulligan.ports.fault_points import fault_point as fault_point
from mulligan.ports.records import ANSWERS_BEHIND_MAX as ANSWERS_BEHIND_MAX
from mulligan.ports.records import NONE_AHEAD as NONE_AHEAD
from mulligan.ports.records import Answer as Answer
from mulligan.ports.records import ArtifactRecord as ArtifactRecord
from mulligan.ports.records import BreakerRecord as BreakerRecord
from mulligan.ports.records import ChildReport as ChildReport
from mulligan.ports.records import Commit as Commit
from mulligan.ports.records import CommitResult as CommitResult
from mulligan.ports.records import FindResults as FindResults
from mulligan.ports.records import Lease as Lease
from mulligan.ports.records import LoadedRun as LoadedRun
from mulligan.ports.records import LockState as LockState
from mulligan.ports.records import Message as Message
from mulligan.ports.records import NewRun as NewRun
from mulligan.ports.records import Offer as Offer
from mulligan.ports.records import RunRecord as RunRecord
from mulligan.ports.records import StopRequest as StopRequest
from mulligan.ports.records import Turn as Turn
from mulligan.ports.records import WaitingPlace as WaitingPlace
from mulligan.ports.records import WorkerRecord as WorkerRecord
from mulligan.ports.store import Artifacts as Artifacts
from mulligan.ports.store import Breakers as Breakers
from mulligan.ports.store import ChangeFeed as ChangeFeed
from mulligan.ports.store import EngineStore as EngineStore
from mulligan.ports.store import Inboxes as Inboxes
from mulligan.ports.store import Maintenance as Maintenance
from mulligan.ports.store import RowSearch as RowSearch
from mulligan.ports.store import RunLists as RunLists
from mulligan.ports.store import RunRecords as RunRecords
from mulligan.ports.store import RunRequests as RunRequests
from mulligan.ports.store import Store as Store
from mulligan.ports.store import TaskQueue as TaskQueue
from mulligan.ports.store import Timers as Timers
from mulligan.ports.store import Turns as Turns
from mulligan.ports.store import WorkerRegistry as WorkerRegistry
