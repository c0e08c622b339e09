//! Chunks on their way through the operators and into the sinks.
//!
//! An operator may hand on parts of its output before it returns (`operator/parts.rs`). A part flows through all
//! operators behind it and into their sinks at once, depth first, so that never more than a part of each is in memory.
//! An operator with several inputs would take it before its other inputs' rows: its parts are kept until those are there.

use std::collections::BTreeMap;

use super::EngineError;
use super::graph::{NodeId, OperatorNode, Outlet};
use super::step::{QueryCounters, SinkNode};
use crate::event::LogTime;
use crate::expr::EvalContext;
use crate::operator::parts::joined;
use crate::operator::{Chunk, OperatorError, Sides};

/// What chunks meet on their way.
pub(super) struct Flow<'a> {
    pub context: &'a EvalContext,
    pub sinks: &'a mut [SinkNode],
    /// Output node of each query.
    pub outputs: Vec<NodeId>,
    pub counters: &'a mut [QueryCounters],
    pub time: LogTime,
    /// Parts that wait for the other inputs of a node: by node and input.
    waiting: BTreeMap<(NodeId, usize), Vec<Chunk>>,
    /// Why a part could not be taken.
    failed: Option<EngineError>,
}

impl<'a> Flow<'a> {
    pub fn new(
        context: &'a EvalContext,
        sinks: &'a mut [SinkNode],
        outputs: Vec<NodeId>,
        counters: &'a mut [QueryCounters],
        time: LogTime,
    ) -> Flow<'a> {
        Flow { context, sinks, outputs, counters, time, waiting: BTreeMap::new(), failed: None }
    }

    /// Runs the sources' chunks through all operators: their last chunks are added to `chunks`; parts have gone to the
    /// sinks already. `sides`: of each operator.
    pub fn run(
        &mut self,
        operators: &mut [OperatorNode],
        sides: &mut [Sides],
        chunks: &mut Vec<Chunk>,
    ) -> Result<(), EngineError> {
        let (mut operators, mut sides) = (operators, sides);
        while let (Some((node, behind)), Some((own, others))) = (operators.split_first_mut(), sides.split_first_mut()) {
            let id = chunks.len();
            let mut inputs = Vec::with_capacity(node.inputs.len());
            for (index, input) in node.inputs.iter().enumerate() {
                let last = chunks.get(*input).cloned().unwrap_or_default();
                inputs.push(joined(self.waiting.remove(&(id, index)).unwrap_or_default(), last)?);
            }
            let quiet = inputs.iter().all(|input| input.rows() == 0 && input.marks.is_empty());
            let chunk = match quiet {
                true => Chunk { columns: node.empty.clone(), ..Chunk::default() },
                false => self.process(id, node, &inputs, own, (&mut *behind, &mut *others))?,
            };
            chunks.push(chunk);
            (operators, sides) = (behind, others);
        }
        Ok(())
    }

    fn process(
        &mut self,
        id: NodeId,
        node: &mut OperatorNode,
        inputs: &[Chunk],
        sides: &mut Sides,
        (behind, others): (&mut [OperatorNode], &mut [Sides]),
    ) -> Result<Chunk, EngineError> {
        let context = self.context;
        let result = node.operator.process_in_parts(inputs, context, sides, &mut |part| {
            self.pass_on(id, part, behind, others).map_err(|error| {
                self.failed = Some(error);
                OperatorError::Emit
            })
        });
        result.map_err(|error| self.failed.take().unwrap_or(error.into()))
    }

    /// Takes a part of a node's output to the sinks and through the operators behind it.
    fn pass_on(
        &mut self,
        from: NodeId,
        part: Chunk,
        behind: &mut [OperatorNode],
        sides: &mut [Sides],
    ) -> Result<(), EngineError> {
        self.write(from, &part)?;
        let mut parts = BTreeMap::from([(from, part)]);
        let (mut behind, mut sides) = (behind, sides);
        let mut id = from;
        while let (Some((node, rest)), Some((own, others))) = (behind.split_first_mut(), sides.split_first_mut()) {
            id += 1;
            if let [input] = node.inputs.as_slice() {
                if let Some(part) = parts.get(input).cloned() {
                    let chunk = self.process(id, node, &[part], own, (&mut *rest, &mut *others))?;
                    self.write(id, &chunk)?;
                    parts.insert(id, chunk);
                }
            } else {
                for (index, input) in node.inputs.iter().enumerate() {
                    if let Some(part) = parts.get(input) {
                        self.waiting.entry((id, index)).or_default().push(part.clone());
                    }
                }
            }
            (behind, sides) = (rest, others);
        }
        Ok(())
    }

    /// Counts a chunk of a node, and writes it to the sinks that read the node.
    fn write(&mut self, id: NodeId, chunk: &Chunk) -> Result<(), EngineError> {
        for (counters, _) in self.counters.iter_mut().zip(&self.outputs).filter(|(_, output)| **output == id) {
            counters.rows += chunk.rows() as u64;
        }
        let sinks = self.sinks.iter_mut().filter(|sink| sink.outlet == Outlet::Node(id));
        sinks.into_iter().try_for_each(|sink| sink.write(chunk, self.time))
    }
}
