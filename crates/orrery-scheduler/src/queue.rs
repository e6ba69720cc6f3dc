//! Tasks that are not running yet, and each agent's queue of ready ones.
//!
//! A queue is seven lists, one for each priority, ordered by request number. A new task has the
//! highest number and goes to the end. A task that was ready, had to wait and is ready again keeps
//! its number; it goes to a small heap beside the lists, and the lower key of list and heap is
//! next. Removal from a list is immediate; stale entries of the heap are dropped when they reach
//! its top.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use orrery_model::{Timestamp, VersionNumber};

use crate::command::Priority;
use crate::edges::NONE;

/// Reason that a task exists, with slots instead of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    NewVersion(VersionNumber),
    UserDeployDirty,
    UserVerify,
    Drift,
    Retry(u32),
    RepairInterval,
    DeployCron,
    RepairCron,
    Event(ResourceRef),
    Recovered(ResourceRef),
    RequirementScheduled(ResourceRef),
    Restart,
    Interrupted,
    DryRun,
    FactRefresh,
}

/// Reference to a resource: a slot and the generation of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceRef {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deploy {
        slot: u32,
    },
    FactRefresh {
        slot: u32,
    },
    /// Index into the dry runs, and into the dry run's resources.
    DryRun {
        run: u32,
        entry: u32,
    },
}

/// Position of a task that is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Waiting,
    /// In the list of its priority.
    Lane,
    /// In the heap of tasks that are ready again.
    Returned,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) cause: Cause,
    pub(crate) priority: Priority,
    pub(crate) state: TaskState,
    pub(crate) agent: u32,
    /// Grows with each request.
    pub(crate) number: u64,
    /// Number of direct requirements that are scheduled.
    pub(crate) waiting_on: u32,
    pub(crate) requested_at: Timestamp,
    previous: u32,
    /// Next in its lane; the next free task, if this one is free.
    next: u32,
}

/// Sort key of execution: lower first.
pub(crate) fn key(priority: Priority, number: u64) -> u64 {
    (priority as u64) << 56 | number
}

impl Task {
    pub(crate) fn new(
        kind: Kind,
        cause: Cause,
        priority: Priority,
        agent: u32,
        number: u64,
        requested_at: Timestamp,
    ) -> Self {
        Task {
            kind,
            cause,
            priority,
            state: TaskState::Waiting,
            agent,
            number,
            waiting_on: 0,
            requested_at,
            previous: NONE,
            next: NONE,
        }
    }

    pub(crate) fn key(&self) -> u64 {
        key(self.priority, self.number)
    }
}

/// Both ends of a list.
#[derive(Clone, Copy, Debug)]
struct Lane {
    first: u32,
    last: u32,
}

/// One serial queue of work.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: Arc<str>,
    pub(crate) paused: bool,
    /// True if the agent is queued for dispatch.
    pub(crate) woken: bool,
    /// Its running task.
    pub(crate) run: u32,
    /// Deadline of that task, or end of its grace period; `NEVER` without.
    pub(crate) due: Timestamp,
    pub(crate) group: u32,
    /// Key under which it waits for its group's limit.
    pub(crate) held: Option<u64>,
    /// Head of its list of resources.
    pub(crate) resources: u32,
    /// Number of ready tasks.
    pub(crate) queued: u32,
    lanes: [Lane; Priority::ALL.len()],
    returned: BinaryHeap<Reverse<(u64, u32)>>,
}

/// All waiting and ready tasks, and the agents that run them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    tasks: Vec<Task>,
    first_free: Option<u32>,
    live: usize,
    queued: usize,
    pub(crate) agents: Vec<Agent>,
}

impl std::ops::Index<u32> for Queues {
    type Output = Task;

    fn index(&self, task: u32) -> &Task {
        &self.tasks[task as usize]
    }
}

impl std::ops::IndexMut<u32> for Queues {
    fn index_mut(&mut self, task: u32) -> &mut Task {
        &mut self.tasks[task as usize]
    }
}

impl Queues {
    pub(crate) fn add_agent(&mut self, name: Arc<str>, group: u32) -> u32 {
        self.agents.push(Agent {
            name,
            paused: false,
            woken: false,
            run: NONE,
            due: crate::timers::NEVER,
            group,
            held: None,
            resources: NONE,
            queued: 0,
            lanes: [Lane { first: NONE, last: NONE }; Priority::ALL.len()],
            returned: BinaryHeap::new(),
        });
        u32::try_from(self.agents.len() - 1).expect("invariant: fewer agents than u32 holds")
    }

    pub(crate) fn agent(&self, agent: u32) -> &Agent {
        &self.agents[agent as usize]
    }

    pub(crate) fn agent_mut(&mut self, agent: u32) -> &mut Agent {
        &mut self.agents[agent as usize]
    }

    /// Number of waiting and ready tasks.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Number of ready tasks.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Adds a waiting task.
    pub(crate) fn insert(&mut self, task: Task) -> u32 {
        self.live += 1;
        match self.first_free {
            None => {
                self.tasks.push(task);
                u32::try_from(self.tasks.len() - 1).expect("invariant: fewer tasks than u32 holds")
            }
            Some(free) => {
                let next = self.tasks[free as usize].next;
                self.first_free = (next != NONE).then_some(next);
                self.tasks[free as usize] = task;
                free
            }
        }
    }

    /// Removes a task in any state.
    pub(crate) fn remove(&mut self, task: u32) -> Task {
        self.defer(task);
        let removed = self.tasks[task as usize].clone();
        self.live -= 1;
        if self.live == 0 {
            // No task remains: releases the memory of a burst of a million tasks.
            self.first_free = None;
            self.tasks.clear();
            self.tasks.shrink_to(1024);
        } else {
            self.tasks[task as usize].next = self.first_free.unwrap_or(NONE);
            // A stale heap entry must not match this slot again.
            self.tasks[task as usize].state = TaskState::Waiting;
            self.first_free = Some(task);
        }
        removed
    }

    /// Makes a waiting task ready.
    pub(crate) fn make_ready(&mut self, task: u32) {
        let Task { agent, priority, number, .. } = self.tasks[task as usize];
        let queue = &mut self.agents[agent as usize];
        queue.queued += 1;
        self.queued += 1;
        let lane = &mut queue.lanes[priority as usize];
        if lane.last == NONE || self.tasks[lane.last as usize].number < number {
            let last = std::mem::replace(&mut lane.last, task);
            if last == NONE {
                lane.first = task;
            } else {
                self.tasks[last as usize].next = task;
            }
            let entry = &mut self.tasks[task as usize];
            (entry.previous, entry.next, entry.state) = (last, NONE, TaskState::Lane);
        } else {
            self.tasks[task as usize].state = TaskState::Returned;
            queue.returned.push(Reverse((key(priority, number), task)));
            let tasks = &self.tasks;
            if queue.returned.len() > 2 * queue.queued as usize + 16 {
                let mut entries = std::mem::take(&mut queue.returned).into_vec();
                entries.retain(|Reverse((key, task))| is_returned(tasks, *key, *task));
                entries.sort_unstable();
                entries.dedup();
                queue.returned = entries.into();
            }
        }
    }

    /// Makes a ready task wait again, with the same number.
    pub(crate) fn defer(&mut self, task: u32) {
        let Task { agent, priority, state, previous, next, .. } = self.tasks[task as usize];
        if state == TaskState::Waiting {
            return;
        }
        self.queued -= 1;
        let queue = &mut self.agents[agent as usize];
        queue.queued -= 1;
        if state == TaskState::Lane {
            let lane = &mut queue.lanes[priority as usize];
            if previous == NONE {
                lane.first = next;
            } else {
                self.tasks[previous as usize].next = next;
            }
            if next == NONE {
                lane.last = previous;
            } else {
                self.tasks[next as usize].previous = previous;
            }
        }
        self.tasks[task as usize].state = TaskState::Waiting;
        if queue.queued == 0 {
            queue.returned = BinaryHeap::new();
        }
    }

    /// Returns the task that the agent runs next.
    pub(crate) fn next_of(&mut self, agent: u32) -> Option<u32> {
        let queue = &mut self.agents[agent as usize];
        if queue.queued == 0 {
            return None;
        }
        let in_lanes = queue.lanes.iter().map(|lane| lane.first).find(|first| *first != NONE);
        while let Some(Reverse((key, task))) = queue.returned.peek() {
            if is_returned(&self.tasks, *key, *task) {
                let returned = *task;
                return match in_lanes {
                    Some(first) if self.tasks[first as usize].key() < *key => Some(first),
                    _ => Some(returned),
                };
            }
            queue.returned.pop();
        }
        in_lanes
    }

    /// Ready tasks of an agent in execution order, without those that are ready again.
    pub(crate) fn first_in_lanes(&self, agent: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |task: u32| (task != NONE).then_some(task);
        let lanes = self.agents[agent as usize].lanes.iter();
        lanes.flat_map(move |lane| {
            std::iter::successors(next(lane.first), move |&task| {
                next(self.tasks[task as usize].next)
            })
        })
    }

    /// Returns all ready tasks of an agent in execution order. Linear; for display only.
    pub(crate) fn ready_of(&self, agent: u32) -> Vec<u32> {
        let queue = &self.agents[agent as usize];
        let mut ready: Vec<(u64, u32)> = Vec::new();
        for lane in &queue.lanes {
            let mut task = lane.first;
            while task != NONE {
                ready.push((self.tasks[task as usize].key(), task));
                task = self.tasks[task as usize].next;
            }
        }
        for Reverse((key, task)) in &queue.returned {
            if is_returned(&self.tasks, *key, *task) {
                ready.push((*key, *task));
            }
        }
        ready.sort_unstable();
        ready.dedup();
        ready.into_iter().map(|(_, task)| task).collect()
    }
}

fn is_returned(tasks: &[Task], key: u64, task: u32) -> bool {
    tasks
        .get(task as usize)
        .is_some_and(|task| task.state == TaskState::Returned && task.key() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Queues {
        let mut queues = Queues::default();
        queues.add_agent("web".into(), 0);
        queues
    }

    fn add(queues: &mut Queues, priority: Priority, number: u64) -> u32 {
        let kind = Kind::Deploy { slot: 0 };
        let task = Task::new(kind, Cause::UserDeployDirty, priority, 0, number, Timestamp(0));
        let task = queues.insert(task);
        queues.make_ready(task);
        task
    }

    fn drain(queues: &mut Queues) -> Vec<u64> {
        let mut numbers = Vec::new();
        let ready = queues.ready_of(0);
        let in_lanes: Vec<u32> = queues.first_in_lanes(0).collect();
        assert!(
            in_lanes.iter().is_sorted_by_key(|task| ready.iter().position(|one| *one == *task))
        );
        while let Some(task) = queues.next_of(0) {
            assert_eq!(task, ready[numbers.len()], "what people see is what happens");
            numbers.push(queues.remove(task).number);
        }
        numbers
    }

    #[test]
    fn urgent_first_then_in_the_order_of_requests() {
        let mut queues = queues();
        add(&mut queues, Priority::IntervalRepair, 1);
        add(&mut queues, Priority::NewVersion, 2);
        add(&mut queues, Priority::UserDeployDirty, 3);
        add(&mut queues, Priority::NewVersion, 4);
        assert_eq!(drain(&mut queues), [3, 2, 4, 1]);
        assert_eq!((queues.live(), queues.queued()), (0, 0));
    }

    #[test]
    fn a_task_that_is_ready_again_keeps_its_position() {
        let mut queues = queues();
        let tasks: Vec<u32> = (1..=5).map(|n| add(&mut queues, Priority::NewVersion, n)).collect();
        for task in [tasks[3], tasks[1], tasks[0]] {
            queues.defer(task);
            queues.defer(task);
        }
        for task in [tasks[1], tasks[3], tasks[0]] {
            queues.make_ready(task);
        }
        queues.defer(tasks[1]);
        queues.make_ready(tasks[1]);
        queues.remove(tasks[2]);
        assert_eq!(drain(&mut queues), [1, 2, 4, 5]);
    }

    #[test]
    fn entries_that_no_longer_count_do_not_pile_up() {
        let mut queues = queues();
        let first = add(&mut queues, Priority::NewVersion, 1);
        add(&mut queues, Priority::NewVersion, 2);
        for _ in 0..1000 {
            queues.defer(first);
            queues.make_ready(first);
        }
        assert!(queues.agents[0].returned.len() <= 2 * 2 + 17);
        assert_eq!(drain(&mut queues), [1, 2]);
    }
}
