//! The task behind a connection: connects, reads, writes, sleeps.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};

use super::{Inner, Shared, now};
use crate::client::login::Preparing;
use crate::client::transport::Stream;
use crate::machine::connection::{ConnectionError, FrameReader, ProtocolViolation, Step, TlsFault};
use crate::machine::sasl::LoginError;

/// Drives the link until it wants no transport.
pub(super) async fn drive(shared: Arc<Shared>) {
    let _guard = Guard(&shared);
    loop {
        let step = {
            let mut inner = shared.lock();
            inner.changed = false;
            let step = inner.link.poll_step(now());
            if step == (Step::Rest { timeout: None }) {
                // Under the same lock as the look: a request that comes after it starts a task of its own.
                inner.driven = false;
            }
            step
        };
        shared.settle();
        match step {
            Step::Rest { timeout: None } => return,
            Step::Rest { timeout: Some(at) } => rest(&shared, at).await,
            Step::Connect { .. } => {
                if let Some(stream) = connect(&shared).await {
                    Serving::new(&shared, stream).await;
                }
            }
            // Left over from a transport whose task ended: impossible, and harmless.
            Step::Serve { .. } => shared.lock().link.abandon(),
        }
        shared.settle();
    }
}

/// Fails what waits, because no task can be started.
pub(super) fn give_up(shared: &Arc<Shared>) {
    drop(Guard(shared));
}

/// A task that ends early, with its runtime or by a panic, must not leave callers waiting.
struct Guard<'a>(&'a Arc<Shared>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        {
            let mut inner = self.0.lock();
            if !inner.driven {
                return;
            }
            inner.link.abandon();
            inner.driven = false;
        }
        self.0.settle();
    }
}

async fn rest(shared: &Shared, until: Instant) {
    tokio::select! {
        biased;
        () = changed(shared) => {}
        () = sleep_until(until.into()) => {
            shared.lock().link.handle_timeout(now(), fastrand::f64());
        }
    }
}

/// Makes a stream while the link wants one.
async fn connect(shared: &Shared) -> Option<Box<dyn Stream>> {
    let mut connecting = pin!(async {
        let address = shared.route.address()?;
        let stream = shared.connector.connect(&address).await;
        stream.map_err(|error| match TlsFault::of(&error) {
            Some(fault) => fault.clone().into(),
            None => ConnectionError::Connect { address: address.to_string(), source: Arc::new(error) },
        })
    });
    loop {
        let timeout = {
            let mut inner = shared.lock();
            inner.changed = false;
            match inner.link.poll_step(now()) {
                Step::Connect { timeout } => timeout,
                _ => return None,
            }
        };
        shared.settle();
        tokio::select! {
            biased;
            made = &mut connecting => match made {
                Ok(stream) => {
                    shared.meter.connected();
                    shared.lock().link.handle_connected(now());
                    return Some(stream);
                }
                Err(error) => {
                    shared.route.failed(&error);
                    shared.lock().link.handle_connect_failed(now(), error, fastrand::f64());
                    return None;
                }
            },
            () = changed(shared) => {}
            () = sleep_until(timeout.into()) => {
                let failed = shared.lock().link.handle_timeout(now(), fastrand::f64());
                if let Some(error) = failed {
                    shared.route.failed(&error);
                }
            }
        }
    }
}

/// Waits until a handle did something.
async fn changed(shared: &Shared) {
    poll_fn(|cx| {
        let mut inner = shared.lock();
        if inner.changed {
            return Poll::Ready(());
        }
        inner.watch(cx);
        Poll::Pending
    })
    .await;
}

impl Inner {
    fn watch(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}

/// A stream and what it carries: ready when the link wants it no more.
struct Serving<'a> {
    shared: &'a Shared,
    stream: Box<dyn Stream>,
    reader: FrameReader,
    segments: VecDeque<Bytes>,
    /// What was read since other tasks had their turn.
    turn_bytes: usize,
    unflushed: bool,
    sleep: Pin<Box<Sleep>>,
    /// Credentials on their way.
    credentials: Option<Preparing>,
}

/// How one round of work left the stream.
enum Round {
    /// Something moved: look again.
    Moved,
    /// Nothing to do until the stream, a handle or the clock wakes the task.
    Still,
    /// The link wants the stream no more.
    Over,
}

impl<'a> Serving<'a> {
    fn new(shared: &'a Shared, stream: Box<dyn Stream>) -> Self {
        Self {
            shared,
            stream,
            reader: FrameReader::new(shared.limits.response_bytes),
            segments: VecDeque::new(),
            turn_bytes: 0,
            unflushed: false,
            sleep: Box::pin(sleep_until(tokio::time::Instant::now())),
            credentials: None,
        }
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Round {
        let Some(timeout) = self.look(cx) else { return Round::Over };
        let mut moved = self.prepare(cx);
        match self.write(cx) {
            Ok(written) => moved |= written,
            Err(error) => return self.lost(error),
        }
        match self.read(cx) {
            Ok(read) => moved |= read,
            Err(error) => return self.lost(error),
        }
        moved |= self.tick(cx, timeout);
        self.shared.settle();
        if moved { Round::Moved } else { Round::Still }
    }

    /// Takes what there is to write; `None` if the link wants the stream no more, else when to look at the clock.
    fn look(&mut self, cx: &Context<'_>) -> Option<Option<Instant>> {
        let mut inner = self.shared.lock();
        inner.changed = false;
        inner.watch(cx);
        let now = now();
        inner.link.poll_transmit(now, &mut self.segments);
        if inner.orphaned && !inner.link.is_busy() {
            inner.link.close();
        }
        match inner.link.poll_step(now) {
            Step::Serve { timeout } => Some(timeout),
            Step::Connect { .. } | Step::Rest { .. } => None,
        }
    }

    /// Gets credentials when they are wanted; whether they came, or cannot be had.
    fn prepare(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(login) = &self.shared.login else { return false };
        if self.shared.lock().link.poll_login() {
            tracing::debug!(connection = ?self.shared.route, ?login, "logging in");
            self.credentials = Some(login.prepare(self.shared.limits.setup));
        }
        let Some(preparing) = &mut self.credentials else { return false };
        let Poll::Ready(prepared) = preparing.as_mut().poll(cx) else { return false };
        self.credentials = None;
        let failed = self.shared.lock().link.handle_credentials(now(), prepared, fastrand::f64());
        self.tell(failed);
        true
    }

    /// Writes all it can; whether anything was written.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut written = 0;
        let result = self.write_segments(cx, &mut written);
        if written > 0 {
            self.unflushed = true;
            // Before a failure as well: what left may be acted on, so its request is not one that was never sent.
            self.shared.lock().link.handle_transmitted(now(), written);
        }
        result?;
        if self.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(written > 0)
    }

    fn write_segments(&mut self, cx: &mut Context<'_>, written: &mut usize) -> io::Result<()> {
        while !self.segments.is_empty() {
            let mut slices = [IoSlice::new(&[]); SEGMENTS_A_WRITE];
            let count = self.segments.len().min(SEGMENTS_A_WRITE);
            for (slice, segment) in slices.iter_mut().zip(&self.segments) {
                *slice = IoSlice::new(segment);
            }
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(bytes) => {
                    *written += bytes;
                    self.advance(bytes);
                }
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut bytes: usize) {
        while let Some(segment) = self.segments.front_mut() {
            if bytes < segment.len() {
                return segment.advance(bytes);
            }
            bytes -= segment.len();
            self.segments.pop_front();
        }
    }

    /// Reads once; whether anything came.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let read = {
            let (buffer, limit) = self.reader.buffer();
            let mut buffer = buffer.limit(limit.min(TURN_BYTES));
            // The future holds nothing between polls, so it can be made anew each time.
            match pin!(self.stream.read_buf(&mut buffer)).poll(cx)? {
                Poll::Ready(read) => read,
                Poll::Pending => return Ok(false),
            }
        };
        self.turn_bytes += read;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed the connection"));
        }
        let came = now();
        loop {
            match self.reader.next_frame(came) {
                Ok(Some(frame)) => {
                    let (result, throttled) = {
                        let mut inner = self.shared.lock();
                        let result = inner.link.handle_frame(now(), frame, fastrand::f64());
                        (result, inner.link.poll_throttled())
                    };
                    if let Some(throttled) = throttled {
                        self.shared.route.throttled(throttled);
                    }
                    if let Err(error) = result {
                        self.tell(Some(error));
                        return Ok(true);
                    }
                }
                Ok(None) => return Ok(true),
                Err(error) => {
                    let violation = ProtocolViolation::Frame(error);
                    let failed = self.shared.lock().link.handle_violation(now(), violation, fastrand::f64());
                    self.tell(failed);
                    return Ok(true);
                }
            }
        }
    }

    /// Looks at the clock; whether it was time for something.
    fn tick(&mut self, cx: &mut Context<'_>, timeout: Option<Instant>) -> bool {
        let timeout = [timeout, self.reader.poll_timeout()].into_iter().flatten().min();
        let Some(timeout) = timeout.map(tokio::time::Instant::from_std) else { return false };
        // A timer that fires early costs one look; one that is moved at every request costs more.
        if timeout < self.sleep.deadline() || self.sleep.is_elapsed() {
            self.sleep.as_mut().reset(timeout);
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        let now = now();
        self.reader.handle_timeout(now);
        let failed = self.shared.lock().link.handle_timeout(now, fastrand::f64());
        self.tell(failed);
        true
    }

    fn lost(&mut self, error: io::Error) -> Round {
        let failed = self.shared.lock().link.handle_lost(now(), error, fastrand::f64());
        self.tell(failed);
        self.shared.settle();
        Round::Over
    }

    /// Passes the transport's fault on, if there was one.
    fn tell(&self, failed: Option<Arc<ConnectionError>>) {
        let Some(error) = failed else { return };
        if let (ConnectionError::Login(LoginError::Refused { .. }), Some(login)) = (&*error, &self.shared.login) {
            login.handle_refused();
        }
        self.shared.route.failed(&error);
    }
}

impl Future for Serving<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.round(cx) {
                Round::Moved if self.turn_bytes >= TURN_BYTES => {
                    self.turn_bytes = 0;
                    // A heartbeat on this thread does not wait until 50 MiB are read. This polls what wakes tasks as well, and
                    // wakes this one behind them.
                    if pin!(yield_now()).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Round::Moved => {}
                Round::Still => {
                    self.turn_bytes = 0;
                    return Poll::Pending;
                }
                Round::Over => return Poll::Ready(()),
            }
        }
    }
}

/// A request is a head and a body of few segments; more than fit in one call follow in the next.
const SEGMENTS_A_WRITE: usize = 64;

/// So much is read in one turn, some 100 microseconds' work.
const TURN_BYTES: usize = 256 << 10;
