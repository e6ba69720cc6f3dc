//! The dataflow machine. Every variable and attribute is a *cell*; every statement and every
//! expression that needs a step of its own is a *unit* that waits for cells or for results of other
//! units, and runs from one FIFO queue when it has them. The order in which units are made, wait and
//! run is part of the language: prints, relation order and freezing follow from it.
//!
//! Start from `Machine::run` in `schedule`; `emit` makes units, `exec` runs them.

mod ahead;
mod bind;
mod call;
mod cells;
mod construct;
mod context;
mod emit;
mod exec;
mod explain;
mod expr;
mod finish;
mod gradual;
mod graph;
mod hops;
mod incomplete;
mod index;
mod limits;
mod missing;
mod rules;
mod schedule;
mod validate;

use std::collections::VecDeque;

use orrery_model::FieldRule;
use orrery_syntax::Symbol;
use orrery_syntax::ast::Loc;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::error::{CompileError, Result};
use crate::host::Host;
use crate::ir::{ExprId, StmtId};
use crate::plugins::{Facts, FileKind, Identity, Outcome, ServerSide};
use crate::program::{AttributeId, EntityId, Program};
use crate::project::{Limits, TemplateMode};
use crate::render::{Instances, Renderer};
use crate::value::{Heap, InstanceId, ListId, Value};

pub(crate) use graph::Graph;

pub(crate) const NONE: u32 = u32::MAX;

/// Frames: an instance's frame is its number with this bit set and holds no variables of its own.
const INSTANCE_FRAME: u32 = 1 << 31;
/// The frame of top-level code: its variables have fixed cells.
const FILE_FRAME: u32 = NONE;

/// What set a value or made a unit: a statement, or an expression (a constructor, a call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Stmt(StmtId),
    Expr(ExprId),
}

const READY: u8 = 1;
/// An optional relation that ended without a value.
const EMPTY: u8 = 2;
/// The cell stands in the wait queue or the zero list.
const QUEUED: u8 = 4;
/// It stands in the zero list.
const IN_ZERO: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellKind {
    Plain,
    /// A relation `[0:1]`
    Optional,
    /// Any other relation but `[1]`
    List,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    value: Value,
    /// Plain: first waiter. Otherwise: number of its `Delayed`, if it has one.
    head: u32,
    /// Plain: last waiter. Otherwise: position in the zero list.
    tail: u32,
    /// Encoded `Origin` of the value.
    origin: u32,
    kind: CellKind,
    flags: u8,
}

impl Cell {
    fn value(&self) -> Option<Value> {
        (self.flags & READY != 0 && self.flags & EMPTY == 0).then_some(self.value)
    }
}

/// What a delayed cell needs once something happens to it.
#[derive(Debug, Default)]
struct Delayed {
    values: SmallVec<[Value; 1]>,
    /// Members, once the list is long.
    members: FxHashSet<u64>,
    waiters: SmallVec<[u32; 4]>,
    /// Units that get each value as it arrives.
    listeners: SmallVec<[u32; 4]>,
    /// How many of the waiters do not block.
    gradual: u32,
    promises: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    unit: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    parent: u32,
    cells: u32,
    /// Number of its names in the program.
    names: u32,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub entity: EntityId,
    /// First of its cells.
    pub cells: u32,
    /// The constructor that made it.
    pub constructor: ExprId,
    /// Which implementations have run, by position among those of the entity.
    implemented: u64,
    /// How many implementations deep it was made.
    depth: u32,
    creator: u32,
}

/// The result of another unit that a unit reads.
#[derive(Clone, Copy, Debug)]
enum Temp {
    Pending,
    Value(Value),
    Cell(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    /// `x = e`
    Assign,
    /// An expression for its effects
    Discard,
    /// `a.b = e`, waiting for `a`
    ResolveTarget,
    /// The assignment itself
    SetAttr,
    /// A row of assignments of one constructor that wait for nothing
    SetReady,
    If,
    For,
    /// Acquires a promise for a block
    Promise,
    /// `a.b`: finds the cell
    Hop,
    Call,
    IndexLookup,
    ShortIndexLookup,
    /// `and`, `or`: left side, then right side
    LazyLeft,
    LazyRight,
    /// Condition, then the chosen side
    Condition,
    Branch,
    /// `a.b is defined`: the owner, then the cell
    Defined,
    DefinedCell,
    /// Comprehension: its list, one element, the whole
    Iterate,
    Element,
    Collect,
    /// One item of a list literal that is read gradually
    Item,
    /// The condition of an `implement`
    Implement,
    /// An annotation of a relation
    Annotation,
}

const REPORTED: u8 = 1;
const DONE: u8 = 2;
/// The first temp holds the whole of a list literal.
const LITERAL: u8 = 4;
/// The whole value has something in it that was not reported.
const MISSED: u8 = 8;

/// A step that waits to be run.
#[derive(Clone, Copy, Debug)]
struct Unit {
    kind: Kind,
    flags: u8,
    waiting: u32,
    /// Order of creation.
    sequence: u32,
    frame: u32,
    /// Number of the statement, expression or implement that it runs.
    node: u32,
    /// First of its temps.
    temps: u32,
    temp_count: u32,
    /// Who gets the result.
    dest: u32,
    dest_slot: u32,
    /// By kind: instance, comprehension, literal, owner.
    a: u32,
    /// By kind: slot, position.
    b: u32,
    /// Encoded `Origin`: whose assignment it is.
    origin: u32,
    /// Encoded `Origin` of the value that is assigned: a default's is its declaration.
    set_by: u32,
    /// A unit that gets values as they arrive.
    collector: u32,
    /// What is assigned to, for implicit inverses.
    owner: emit::Owner,
}

/// What stands in the run queue.
#[derive(Clone, Copy, Debug)]
enum Ready {
    /// A unit that has all it waited for.
    Unit(u32),
    /// `a.b` whose `a` was known when it was met: the reader gets the cell when its turn comes.
    Read { dest: emit::Dest, cell: u32 },
    /// `a.b.c`, likewise: the cell is that of `a.b`.
    Chain { chain: u32, cell: u32 },
}

/// The last hop of `a.b.c`, to be made once its turn comes.
#[derive(Clone, Copy, Debug)]
struct Chain {
    dest: emit::Dest,
    expr: ExprId,
    frame: u32,
    sequence: u32,
}

/// A comprehension under way.
#[derive(Debug)]
struct Comprehending {
    results: Vec<Value>,
    /// The `Collect` unit.
    collect: u32,
}

/// A list literal that is read gradually.
#[derive(Debug)]
struct Literal {
    values: Vec<Value>,
    pending: u32,
    dest: u32,
    dest_slot: u32,
    collector: u32,
}

/// Who waits for an instance with a certain key.
#[derive(Debug)]
pub(crate) struct PendingLookup {
    dest: u32,
    dest_slot: u32,
    expr: ExprId,
    values: Vec<(u32, Value)>,
    /// Position among the entity's indexes.
    index: u32,
    entity: EntityId,
}

/// What the outside gives to plugins.
pub trait World {
    fn module_dir(&self, module: &str) -> Option<String>;
    fn project_dir(&self) -> String;
    fn read_text(&self, path: &str) -> std::result::Result<String, String>;
    fn file_kind(&self, path: &str) -> FileKind;
    fn list_dir(&self, path: &str) -> std::result::Result<Vec<String>, String>;
    fn write_text(&self, path: &str, text: &str) -> std::result::Result<(), String>;
    fn environment_variable(&self, name: &str) -> Option<String>;
    fn facts(&self) -> Option<&dyn Facts>;
    fn server(&self) -> Option<&ServerSide>;
    /// How instances of an entity become resources, if it is declared itself.
    fn identity(&self, entity: &str) -> Option<&Identity>;
    fn now(&self) -> f64;
    fn random_bytes(&self, count: usize) -> Vec<u8>;
    /// The rules for the fields of an entity, if it is built in.
    fn field_rules(&self, entity: &str) -> Vec<(&'static str, FieldRule)>;
    /// Treatment of attributes that a template reads and their entity does not declare.
    fn template_mode(&self) -> TemplateMode;
    /// A path as messages name it.
    fn show_path(&self, path: &str) -> String;
}

pub struct Machine<'p> {
    pub program: &'p Program,
    pub heap: Heap,
    pub(crate) world: &'p dyn World,
    host: &'p dyn Host,
    cells: Vec<Cell>,
    /// The cells of a new instance, by entity.
    fresh: Vec<Box<[Cell]>>,
    delayed: Vec<Delayed>,
    waiters: Vec<Waiter>,
    free_waiters: u32,
    /// Relations with an annotation that turned out unknown.
    unknown_annotations: Vec<u32>,
    units: Vec<Unit>,
    free_units: Vec<u32>,
    temps: Vec<Temp>,
    /// Temps that are free again, by how many stand together.
    free_temps: [Vec<u32>; 6],
    frames: Vec<Frame>,
    pub(crate) instances: Vec<Instance>,
    /// Further constructors that met an existing instance.
    extra_constructors: FxHashMap<InstanceId, Vec<ExprId>>,
    comprehensions: Vec<Comprehending>,
    literals: Vec<Literal>,
    /// Promises that a block holds, by its unit: their positions and cells.
    held: FxHashMap<u32, Vec<(u32, u32)>>,
    /// Arguments of calls that wait for a value they asked for.
    waiting_calls: FxHashMap<u32, call::Arguments>,
    /// Outcomes of calls that were made before their turn, by unit.
    early: FxHashMap<u32, Outcome>,
    /// Implementations that ran, for entities with more than 64.
    implemented_more: FxHashSet<(InstanceId, u32)>,
    indexes: index::Indexes,
    run: VecDeque<Ready>,
    chains: Vec<Chain>,
    free_chains: Vec<u32>,
    wait: schedule::WaitQueue,
    zero: Vec<u32>,
    /// Cells of the zero list that somebody has come to wait for.
    zero_woken: Vec<u32>,
    sequence: u32,
    iterations: u64,
    /// How many units were run, modulo 256.
    steps: u8,
    limits: Limits,
    pub output: String,
    pub warnings: Vec<(&'static str, String, Option<Loc>)>,
    /// Typedefs that a string or a number is known to match.
    validated: FxHashSet<u64>,
    has_policy: bool,
    empty_list: ListId,
    self_symbol: Symbol,
    /// `requires` of every entity, and who set its members.
    requires: Option<AttributeId>,
    requirements: Vec<graph::Requirement>,
    /// A buffer for texts under construction.
    scratch: String,
}

impl<'p> Machine<'p> {
    pub fn new(
        program: &'p Program,
        heap: Heap,
        world: &'p dyn World,
        host: &'p dyn Host,
        limits: Limits,
    ) -> Self {
        let has_policy = program
            .attributes
            .iter()
            .any(|a| a.relation.is_some_and(|end| end.held_back || end.precedence.is_some()));
        let mut heap = heap;
        heap.set_text_max(limits.text_bytes);
        let empty_list = heap.list_of(&[]);
        let mut machine = Machine {
            program,
            heap,
            world,
            host,
            cells: Vec::new(),
            fresh: cells::fresh_cells(program),
            delayed: Vec::new(),
            waiters: Vec::new(),
            free_waiters: NONE,
            unknown_annotations: Vec::new(),
            units: Vec::new(),
            free_units: Vec::new(),
            temps: Vec::new(),
            free_temps: Default::default(),
            frames: Vec::new(),
            instances: Vec::new(),
            extra_constructors: FxHashMap::default(),
            comprehensions: Vec::new(),
            literals: Vec::new(),
            held: FxHashMap::default(),
            waiting_calls: FxHashMap::default(),
            early: FxHashMap::default(),
            implemented_more: FxHashSet::default(),
            indexes: index::Indexes::new(program),
            run: VecDeque::new(),
            chains: Vec::new(),
            free_chains: Vec::new(),
            wait: schedule::WaitQueue::default(),
            zero: Vec::new(),
            zero_woken: Vec::new(),
            sequence: 0,
            iterations: 0,
            steps: 0,
            limits,
            output: String::new(),
            warnings: Vec::new(),
            validated: FxHashSet::default(),
            has_policy,
            empty_list,
            self_symbol: program.interner.get("self").unwrap_or(Symbol(u32::MAX)),
            requires: graph::requires_of(program),
            requirements: Vec::new(),
            scratch: String::new(),
        };
        for _ in 0..program.globals {
            machine.new_cell(CellKind::Plain);
        }
        machine
    }

    pub fn renderer(&self) -> Renderer<'_> {
        Renderer { program: self.program, heap: &self.heap, instances: self }
    }

    pub fn repr(&self, value: Value) -> String {
        self.renderer().repr(value)
    }

    pub fn str(&self, value: Value) -> String {
        self.renderer().str(value)
    }

    pub fn text(&self, symbol: Symbol) -> &'p str {
        self.program.text(symbol)
    }

    /// The value of a cell that has one; `None` also for an empty optional relation.
    pub fn cell_value(&self, cell: u32) -> Option<Value> {
        self.cells[cell as usize].value()
    }

    /// Keeps what the run came to and drops what it needed on the way.
    pub(crate) fn into_graph(self) -> Graph {
        let Machine { heap, cells, instances, requires, requirements, .. } = self;
        Graph { heap, cells, instances, requires, requirements }
    }

    pub fn instance_count(&self) -> usize {
        self.instances.len()
    }

    fn origin_loc(&self, origin: u32) -> Loc {
        match decode(origin) {
            Origin::Stmt(id) => self.program.stmt(id).loc,
            Origin::Expr(id) => self.program.expr(id).loc,
        }
    }

    fn origin_text(&self, origin: u32) -> String {
        match decode(origin) {
            Origin::Stmt(id) => self.renderer().stmt(id),
            Origin::Expr(id) => self.renderer().expr(id),
        }
    }

    /// Names the statement of an error that has none.
    fn blame(&self, error: Box<CompileError>, origin: u32) -> Box<CompileError> {
        error.or_in(|| self.origin_text(origin), self.origin_loc(origin))
    }

    fn blame_expr(&self, error: Box<CompileError>, id: ExprId) -> Box<CompileError> {
        error.or_in(|| self.renderer().expr(id), self.program.expr(id).loc)
    }

    /// Names an expression as the place of an error, whatever was named before.
    fn replace_blame(&self, error: Box<CompileError>, id: ExprId) -> Box<CompileError> {
        error.replace_statement(&self.renderer().expr(id), self.program.expr(id).loc)
    }

    fn fail<T>(&self, class: &'static str, text: impl Into<String>) -> Result<T> {
        Err(CompileError::new(class, text))
    }
}

fn encode(origin: Origin) -> u32 {
    match origin {
        Origin::Stmt(id) => id.0 << 1,
        Origin::Expr(id) => id.0 << 1 | 1,
    }
}

fn decode(origin: u32) -> Origin {
    if origin & 1 == 0 {
        Origin::Stmt(StmtId(origin >> 1))
    } else {
        Origin::Expr(ExprId(origin >> 1))
    }
}

impl Instances for Machine<'_> {
    fn entity_name(&self, instance: InstanceId) -> String {
        let entity = self.instances[instance.index()].entity;
        self.text(self.program.entity(entity).name).to_owned()
    }

    fn described(&self, instance: InstanceId) -> String {
        let mut places = vec![self.instance_place(self.instances[instance.index()].constructor)];
        for &constructor in self.extra_constructors.get(&instance).into_iter().flatten() {
            places.push(self.instance_place(constructor));
        }
        format!("{} (instantiated at {})", self.entity_name(instance), places.join(","))
    }
}

impl Machine<'_> {
    fn instance_place(&self, constructor: ExprId) -> String {
        self.program.sources.line_place(self.program.expr(constructor).loc)
    }
}
