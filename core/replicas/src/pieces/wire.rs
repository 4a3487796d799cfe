//! What a rank that takes a state and one that gives it say to one another, as messages of the
//! group. The one that takes asks, and the other answers, in the order of the questions.

use std::time::{Duration, Instant};

use polyrank::completion::WaitIntent;
use polyrank::process_group::MessageRequest;
use polyrank::{Error, ProcessGroup, Tensor, Work};

use crate::transport::StatePeer;

/// Bytes of a piece, but for the last one.
pub(super) const PIECE: usize = 4 << 20;
/// Digests in one message.
pub(super) const BATCH: u64 = 8;
/// Bytes of a digest.
pub(super) const DIGEST: usize = blake3::OUT_LEN;

/// That of a piece.
pub(super) type Digest = [u8; DIGEST];

/// The tags of messages: questions, and answers of each kind.
const ASK: u32 = 0x7073_0001;
const SAY: u32 = 0x7073_0002;
pub(super) const DIGESTS: u32 = 0x7073_0003;
pub(super) const DATA: u32 = 0x7073_0004;

/// Numbers in a question, and in the answer to [`Question::Hello`].
const WORDS: usize = 4;
/// How much longer a message may take than who waits for it: a message past its time ends the
/// group, and who gives up says why first.
const GRACE: Duration = Duration::from_secs(2);
/// Between two looks at whether a rank has answered, and whether others are through.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Which state is there?
    Hello,
    /// A piece.
    Piece(u64),
    /// [`BATCH`] digests, from that of this piece on.
    Digests(u64),
    /// Nothing more.
    Done,
}

/// Which state a rank has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The step that was asked for: the answer may be to a question of an earlier quorum.
    pub(super) asked: i64,
    pub(super) step: i64,
    pub(super) length: i64,
    pub(super) piece: i64,
}

/// How many pieces a state has.
pub(super) fn pieces_of(length: u64) -> u64 {
    length.div_ceil(PIECE as u64)
}

/// How long a piece of a state of `length` bytes is; none if there is no such piece.
pub(super) fn piece_length(length: u64, number: u64) -> Option<usize> {
    let rest = length.checked_sub(number.checked_mul(PIECE as u64)?)?;
    // It is at most a piece.
    (rest > 0).then(|| rest.min(PIECE as u64) as usize)
}

/// The other rank, and until when all has to be done.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) group: &'a ProcessGroup,
    pub(super) peer: StatePeer<'a>,
    pub(super) step: i64,
    pub(super) deadline: Instant,
}

impl Link<'_> {
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn issue(&self, message: MessageRequest) -> Result<Work, Error> {
        self.group.issue_message(message, Some(self.left() + GRACE), WaitIntent::Later)
    }

    pub(super) fn send(&self, tensor: Tensor, tag: u32) -> Result<Work, Error> {
        self.issue(MessageRequest::send(tensor, self.peer.rank, tag))
    }

    pub(super) fn receive(&self, bytes: Vec<u8>, tag: u32) -> Result<Work, Error> {
        self.issue(MessageRequest::receive(bytes.into(), Some(self.peer.rank), tag))
    }

    fn receive_words(&self, tag: u32) -> Result<Work, Error> {
        let words = Tensor::from(vec![0_i64; WORDS]);
        self.issue(MessageRequest::receive(words, Some(self.peer.rank), tag))
    }

    /// Asks. A question is short, and leaves by itself.
    pub(super) fn ask(&self, question: Question) -> Result<(), Error> {
        let (kind, number) = match question {
            Question::Hello => (0, 0),
            Question::Piece(number) => (1, number),
            Question::Digests(first) => (2, first),
            Question::Done => (3, 0),
        };
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.send(vec![kind, self.step, number, 0].into(), ASK).map(drop)
    }

    /// The next question, once `work` is done: its step, and what it is; none if it is none.
    pub(super) fn question(work: Work) -> Result<(i64, Option<Question>), Error> {
        let [kind, step, number, _] = words(work)?;
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let question = match kind {
            0 => Some(Question::Hello),
            1 => Some(Question::Piece(number)),
            2 => Some(Question::Digests(number)),
            3 => Some(Question::Done),
            _ => None,
        };
        Ok((step, question))
    }

    pub(super) fn receive_question(&self) -> Result<Work, Error> {
        self.receive_words(ASK)
    }

    pub(super) fn say_hello(&self, hello: Hello) -> Result<Work, Error> {
        let Hello { asked, step, length, piece } = hello;
        self.send(vec![asked, step, length, piece].into(), SAY)
    }

    /// Whether an answer to [`Question::Hello`] is there. To look is better than to receive: who
    /// is through does not leave a receive behind that may never end.
    pub(super) fn has_hello(&self) -> Result<bool, Error> {
        match self.group.iprobe(Some(self.peer.rank), SAY) {
            // Others than `tcp` cannot look.
            Err(Error::Unsupported { .. }) => Ok(true),
            found => Ok(found?.is_some()),
        }
    }

    pub(super) fn receive_hello(&self) -> Result<Work, Error> {
        self.receive_words(SAY)
    }

    pub(super) fn hello(work: Work) -> Result<Hello, Error> {
        let [asked, step, length, piece] = words(work)?;
        Ok(Hello { asked, step, length, piece })
    }
}

fn words(work: Work) -> Result<[i64; WORDS], Error> {
    let tensors = work.into_result()?;
    let words = match tensors.into_iter().next() {
        Some(tensor) => tensor.into_vec::<i64>()?,
        None => Vec::new(),
    };
    // A receive has one tensor, of as many.
    Ok(words.try_into().unwrap_or([-1; WORDS]))
}

/// The bytes that a receive has brought.
pub(super) fn bytes(work: Work) -> Result<Vec<u8>, Error> {
    let tensors = work.into_result()?;
    // A receive has one.
    tensors.into_iter().next().map_or(Ok(Vec::new()), Tensor::into_vec::<u8>)
}
