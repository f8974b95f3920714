"""Tasks of a BMC, as bmcweb keeps them: in memory, the last ones only, with the request that started them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from drivers.simulators.redfish.messages import Json, Request, message

TASKS_MAX = 10
_HIDDEN = ("authorization", "x-auth-token", "cookie")


@dataclass
class Task:
    """A task. `started_by` is the request."""

    id: str
    name: str
    started_by: Request
    began: datetime
    ended: datetime | None = None
    state: str = "New"
    status: str = "OK"
    percent: int = 0
    messages: list[Json] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/redfish/v1/TaskService/Tasks/{self.id}"

    @property
    def monitor(self) -> str:
        return f"/redfish/v1/TaskService/TaskMonitors/{self.id}"

    def end(self, state: str, now: datetime, text: str = "") -> None:
        """End as Completed, Exception or Cancelled."""
        self.state, self.ended = state, now
        self.status = "OK" if state == "Completed" else "Critical"
        if state == "Completed":
            self.percent = 100
            self.messages.append(
                message("TaskEvent.1.0.3.TaskCompletedOK", f"The task {self.id} has completed.", self.id, severity="OK")
            )
        else:
            self.messages.append(
                message("TaskEvent.1.0.3.TaskAborted", f"The task {self.id} was aborted: {text}", self.id)
            )

    def resource(self) -> Json:
        """The Task resource."""
        found: dict[str, Any] = {
            "@odata.type": "#Task.v1_7_4.Task",
            "@odata.id": self.path,
            "Id": self.id,
            "Name": self.name,
            "TaskMonitor": self.monitor,
            "TaskState": self.state,
            "TaskStatus": self.status,
            "PercentComplete": self.percent,
            "StartTime": timestamp(self.began),
            "HidePayload": False,
            "Messages": list(self.messages),
            "Payload": {
                "HttpOperation": self.started_by.method,
                "TargetUri": self.started_by.path,
                "HttpHeaders": [f"{k}: {v}" for k, v in self.started_by.headers.items() if k not in _HIDDEN],
                "JsonBody": _text(self.started_by),
            },
        }
        if self.ended is not None:
            found["EndTime"] = timestamp(self.ended)
        return found


class Tasks:
    """The tasks by id, the oldest first. A BMC forgets old ones, and all of them when it restarts."""

    def __init__(self) -> None:
        self.by_id: dict[str, Task] = {}
        self._begun = 0

    def begin(self, name: str, started_by: Request, now: datetime) -> Task:
        task = Task(str(self._begun), name, started_by, now)
        self._begun += 1
        self.by_id[task.id] = task
        task.state = "Running"
        text = f"The task {task.id} has started."
        task.messages.append(message("TaskEvent.1.0.3.TaskStarted", text, task.id, severity="OK"))
        for old in list(self.by_id)[:-TASKS_MAX]:
            del self.by_id[old]
        return task

    def forget(self, task: str) -> None:
        self.by_id.pop(task, None)

    def restart(self) -> None:
        """Forget all tasks; their numbers begin again."""
        self.by_id.clear()
        self._begun = 0


def timestamp(time: datetime) -> str:
    """A time as Redfish writes it."""
    return time.isoformat(timespec="milliseconds")


def _text(request: Request) -> str:
    try:
        return json.dumps(json.loads(request.body))
    except ValueError:
        return "{}"
