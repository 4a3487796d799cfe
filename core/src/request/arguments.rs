//! What the parameters of a collective call say, by role, and the blocks of buffers that follow
//! from it. The same for calls of all languages.

use std::time::Duration;

use super::method::Role;
use crate::generated::collective::{Blocks, Collective, Facts};
use crate::generated::error::Error;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::Compression;
use crate::tensor::Tensor;

/// Tensors of one parameter, as they came.
#[derive(Clone, Default)]
pub(crate) enum TensorArgument {
    /// The parameter was left out, or is not a tensor.
    #[default]
    Absent,
    One(Tensor),
    List(Vec<Tensor>),
    Lists(Vec<Vec<Tensor>>),
}

/// What the parameters of a call say, by role.
#[derive(Default)]
pub(crate) struct CallArguments {
    pub(crate) input: TensorArgument,
    pub(crate) output: TensorArgument,
    /// Whether the output is the input too.
    pub(crate) in_place: bool,
    pub(crate) input_is_flat: bool,
    pub(crate) output_is_flat: bool,
    pub(crate) input_splits: Vec<usize>,
    pub(crate) output_splits: Vec<usize>,
    pub(crate) reduce_op: ReduceOp,
    pub(crate) root: Option<u32>,
    pub(crate) global_root: Option<u32>,
    pub(crate) root_tensor: u32,
    /// Tensors from which blocks were cut, as they were given.
    pub(crate) uncut_inputs: Vec<Tensor>,
    pub(crate) uncut_outputs: Vec<Tensor>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) compression: Option<Compression>,
    /// Whether elements travel as they are, whatever the group's hints say.
    pub(crate) is_uncompressed: bool,
    /// The name of something that is not built, but was given.
    pub(crate) unbuilt: Option<&'static str>,
}

impl CallArguments {
    /// Adds the tensors of a parameter of this role.
    pub(crate) fn add_tensors(&mut self, role: Role, tensors: TensorArgument) {
        let reads = matches!(role, Role::In | Role::FlatIn);
        *(if reads { &mut self.input } else { &mut self.output }) = tensors;
        self.in_place |= role == Role::InOut;
        self.input_is_flat |= role == Role::FlatIn;
        self.output_is_flat |= role == Role::FlatOut;
    }

    /// Sets in which form elements travel.
    ///
    /// # Errors
    /// What the name must be.
    pub(crate) fn compress(&mut self, name: &str) -> Result<(), String> {
        self.is_uncompressed = name == Compression::NONE;
        if !self.is_uncompressed {
            self.compression = Some(Compression::named(name)?);
        }
        Ok(())
    }

    /// Only the root has such buffers: elsewhere a tensor without elements stands for none.
    pub(super) fn drop_empty(&mut self, facts: &Facts) {
        let at_root = |blocks| matches!(blocks, Blocks::OneAtRoot | Blocks::AllAtRoot);
        for (blocks, buffers) in [(facts.input, &mut self.input), (facts.output, &mut self.output)]
        {
            if let TensorArgument::List(tensors) = buffers
                && at_root(blocks)
                && !self.in_place
                && tensors.iter().all(|tensor| tensor.elements() == 0)
            {
                tensors.clear();
            }
        }
    }

    /// A Rust list is flat. Where one side has a block for each rank and the other has several
    /// tensors, the list is as many lists, one after the other; of a coalesced call, one for each
    /// of `ranks`.
    pub(super) fn group_lists(&mut self, facts: &Facts, ranks: Option<usize>) {
        let many = |blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot);
        if many(facts.output) && !many(facts.input) && !self.output_is_flat {
            let lists = ranks.unwrap_or_else(|| self.input.count());
            self.output.cut_into(lists);
        } else if many(facts.input) && !many(facts.output) && !self.input_is_flat {
            let lists = self.output.count();
            self.input.cut_into(lists);
        }
    }

    /// Outputs of a coalesced call come as c10d has them, a list for each rank with a tensor for
    /// each input; from here on there is a list for each input, with a tensor for each rank.
    pub(crate) fn group_by_input(
        &mut self,
        collective: Collective,
        size: usize,
    ) -> Result<(), String> {
        if collective.facts().output != Blocks::All || self.output_is_flat {
            return Ok(());
        }
        let inputs = match &self.input {
            TensorArgument::Absent => 0,
            TensorArgument::One(_) => 1,
            TensorArgument::List(tensors) => tensors.len(),
            TensorArgument::Lists(lists) => lists.len(),
        };
        let lists = match std::mem::take(&mut self.output) {
            TensorArgument::Lists(lists) => lists,
            TensorArgument::Absent => Vec::new(),
            // One list is that of the only rank of a group.
            TensorArgument::List(tensors) if size == 1 => vec![tensors],
            TensorArgument::One(tensor) => vec![vec![tensor]],
            TensorArgument::List(tensors) => {
                tensors.into_iter().map(|tensor| vec![tensor]).collect()
            }
        };
        if lists.len() != size {
            return Err(format!(
                "expected {size} lists of output tensors, one for each rank of the group, got {}",
                lists.len()
            ));
        }
        if let Some((rank, list)) = lists.iter().enumerate().find(|(_, list)| list.len() != inputs)
        {
            return Err(format!(
                "the list of rank {rank} must have {inputs} output tensors, one for each input, \
                 got {}",
                list.len()
            ));
        }
        let by_input = |input: usize| lists.iter().map(|list| list[input].clone()).collect();
        self.output = TensorArgument::Lists((0..inputs).map(by_input).collect());
        Ok(())
    }

    /// Inputs and outputs: for each entry of the list that was given, the blocks.
    pub(crate) fn buffers(&mut self, collective: Collective, size: usize) -> Result<Lists, String> {
        let facts = collective.facts();
        let input_splits = if self.input_is_flat { Some(&*self.input_splits) } else { None };
        let output_splits = if self.output_is_flat { Some(&*self.output_splits) } else { None };
        let output = std::mem::take(&mut self.output);
        let input = if self.in_place && facts.input != Blocks::None {
            output.clone()
        } else {
            std::mem::take(&mut self.input)
        };
        if input_splits.is_some() {
            self.uncut_inputs = input.flat();
        }
        if output_splits.is_some() {
            self.uncut_outputs = output.flat();
        }
        let mut inputs = blocks(facts.input, input, input_splits, size)?;
        let mut outputs = blocks(facts.output, output, output_splits, size)?;
        // Ranks that are not the root may give an empty list for all their entries.
        fill(&mut inputs, facts.input, outputs.len());
        fill(&mut outputs, facts.output, inputs.len());
        let both = facts.input != Blocks::None && facts.output != Blocks::None;
        if both && inputs.len() != outputs.len() {
            return Err(format!(
                "{} inputs for {} outputs: there must be as many of both",
                inputs.len(),
                outputs.len()
            ));
        }
        if facts.output != Blocks::None && outputs.is_empty() {
            return Err("the list of tensors is empty".to_owned());
        }
        Ok((inputs, outputs))
    }
}

type Lists = (Vec<Vec<Tensor>>, Vec<Vec<Tensor>>);

impl TensorArgument {
    /// The tensors that are not in lists of lists.
    fn flat(&self) -> Vec<Tensor> {
        match self {
            TensorArgument::One(tensor) => vec![tensor.clone()],
            TensorArgument::List(tensors) => tensors.clone(),
            TensorArgument::Absent | TensorArgument::Lists(_) => Vec::new(),
        }
    }

    fn count(&self) -> usize {
        if let TensorArgument::List(tensors) = self { tensors.len() } else { 1 }
    }

    fn cut_into(&mut self, lists: usize) {
        if let TensorArgument::List(tensors) = self
            && lists > 1
            && !tensors.is_empty()
            && tensors.len().is_multiple_of(lists)
        {
            let each = tensors.len() / lists;
            *self = TensorArgument::Lists(tensors.chunks(each).map(<[Tensor]>::to_vec).collect());
        }
    }
}

pub(crate) fn invalid(method: &str, what: String) -> Error {
    Error::InvalidArgument { message: format!("{method}(): {what}") }
}

/// The blocks of each entry. `splits` is given where tensors are flat; empty is equal parts.
fn blocks(
    of: Blocks,
    buffers: TensorArgument,
    splits: Option<&[usize]>,
    size: usize,
) -> Result<Vec<Vec<Tensor>>, String> {
    let has_many = matches!(of, Blocks::All | Blocks::AllAtRoot);
    Ok(match buffers {
        _ if of == Blocks::None => Vec::new(),
        TensorArgument::Absent => Vec::new(),
        TensorArgument::One(tensor) => match splits {
            Some(splits) => vec![cut(&tensor, splits, size)?],
            None => vec![vec![tensor]],
        },
        TensorArgument::List(tensors) => match splits {
            Some(splits) => {
                tensors.iter().map(|tensor| cut(tensor, splits, size)).collect::<Result<_, _>>()?
            }
            None if has_many && tensors.is_empty() => Vec::new(),
            None if has_many => vec![tensors],
            None => tensors.into_iter().map(|tensor| vec![tensor]).collect(),
        },
        TensorArgument::Lists(lists) => lists,
    })
}

/// `lists` with as many empty entries as there are `entries`, if only the root has such buffers.
fn fill(lists: &mut Vec<Vec<Tensor>>, of: Blocks, entries: usize) {
    if lists.is_empty() && matches!(of, Blocks::OneAtRoot | Blocks::AllAtRoot) {
        lists.resize(entries, Vec::new());
    }
}

/// The blocks of a flat tensor, cut along dimension 0.
fn cut(tensor: &Tensor, splits: &[usize], size: usize) -> Result<Vec<Tensor>, String> {
    let rows = tensor.shape().first().copied().unwrap_or(1);
    if splits.is_empty() {
        if size == 0 || rows % size != 0 {
            return Err(format!(
                "Tensor's dim 0 does not divide equally across group size: {rows} rows, \
                 {size} ranks"
            ));
        }
        let equal = vec![rows / size; size];
        return tensor.split(&equal).map_err(|error| error.to_string());
    }
    if splits.len() != size {
        return Err(format!(
            "Number of tensor splits not equal to group size: {} splits, {size} ranks",
            splits.len()
        ));
    }
    tensor.split(splits).map_err(|error| error.to_string())
}
