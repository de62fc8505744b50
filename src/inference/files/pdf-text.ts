import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { entryUrl } from '../../platform/entries.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import { FairPlaces } from '../../platform/fair-places.ts';
import { memoryLimitBytes } from '../../platform/memory.ts';
import { statFields } from '../../platform/process-stat.ts';
import { Remembered } from '../../platform/remembered.ts';
import type { PdfVerdict } from './pdf-child.ts';

export interface PdfLimits {
  readonly pagesMax: number;
  readonly charactersMax: number;
  /** Processor time of the child, where the system limits it: on a busy machine a good file takes longer, a bad one takes no more. */
  readonly processorSecondsMax: number;
  /** Beyond it the machine is too busy; where processor time cannot be limited, it is the file's fault. */
  readonly timeoutMs: number;
  /** Memory of the child in total. */
  readonly memoryBytesMax: number;
  /** PDFs read concurrently, in total and per account. */
  readonly childrenMax: number;
  readonly perAccountMax: number;
  /** PDFs that may wait; further ones are refused. */
  readonly waitingMax: number;
  readonly waitMsMax: number;
  /** How long a PDF that could not be read is refused without another attempt. */
  readonly rememberedMs: number;
}

/** 1,000 pages of text take 3 s of processor time. */
export const defaultPdfLimits: PdfLimits = {
  pagesMax: 1_000,
  charactersMax: 10_000_000,
  processorSecondsMax: 8,
  timeoutMs: 20_000,
  // A quarter of the memory there is, but no less than the child needs to start.
  memoryBytesMax: Math.min(1_073_741_824, Math.max(268_435_456, memoryLimitBytes() / 4)),
  childrenMax: 2,
  perAccountMax: 1,
  waitingMax: 32,
  waitMsMax: 10_000,
  rememberedMs: 300_000,
};

/** Unreadable PDFs that are remembered: a digest and a sentence each. */
const unreadableMax = 10_000;
/** Other work has priority over the child, and much more once it has taken long: most take 0.3 s of processor time. */
const niceness = 2;
const nicenessOfLong = 15;
const longSeconds = 1;
/** Bytes hashed at once: about a millisecond. */
const hashStepBytes = 1_048_576;

/** A file without readable text, with the reason in words for the client. */
export class UnreadablePdf extends Error {
  override readonly name = 'UnreadablePdf';
}

/**
 * Reads the text of PDFs. A separate process reads each one, with limited memory and time, and is then ended, so that a hostile file harms
 * only itself, and customers' files stay apart. It starts in 0.3 s, and PDFs are rare. Accounts take turns; a PDF that could not be read is
 * not tried again for a while.
 */
export class PdfTexts {
  readonly #limits: PdfLimits;
  readonly #children = new Set<ChildProcess>();
  readonly places: FairPlaces;
  /** Reasons, by a digest of account and content: nothing can be learned about another account's files, and no content is kept. */
  readonly #unreadable: Remembered<string>;
  readonly #secret = randomBytes(32);
  #isClosed = false;

  constructor(limits: PdfLimits = defaultPdfLimits) {
    this.#limits = limits;
    const { childrenMax, perAccountMax, waitingMax, waitMsMax, rememberedMs } = limits;
    this.places = new FairPlaces({
      placesMax: childrenMax,
      perAccountMax,
      waitingMax,
      waitMsMax,
      refusal: atCapacity,
    });
    this.#unreadable = new Remembered({ entriesMax: unreadableMax, forMs: rememberedMs });
  }

  /** Number of live processes. */
  get count(): number {
    return this.#children.size;
  }

  /**
   * Rejects with `UnreadablePdf`, with `backend_at_capacity` when too many wait, or with the reason of the signal. A document without text,
   * such as a scan, yields an empty text: that is not a failure.
   */
  async read(accountId: string, bytes: Uint8Array, signal: AbortSignal): Promise<string> {
    if (isBlank(bytes)) return '';
    const name = await this.#nameOf(accountId, bytes, signal);
    this.#refuseUnreadable(name);
    return await this.places.hold(accountId, signal, async () => {
      if (this.#isClosed) throw atCapacity(this.#limits.waitingMax);
      // The same file may have been tried while this request waited.
      this.#refuseUnreadable(name);
      try {
        return await this.#readInChild(bytes, signal);
      } catch (error) {
        if (error instanceof UnreadablePdf) this.#unreadable.set(name, error.message);
        throw error;
      }
    });
  }

  #refuseUnreadable(name: string): void {
    const reason = this.#unreadable.get(name);
    if (reason !== undefined) throw new UnreadablePdf(reason);
  }

  async #nameOf(accountId: string, bytes: Uint8Array, signal: AbortSignal): Promise<string> {
    const hash = createHmac('sha256', this.#secret).update(`${accountId}\0`);
    for (let start = 0; start < bytes.length; start += hashStepBytes) {
      if (start > 0) {
        await setImmediate();
        signal.throwIfAborted();
      }
      hash.update(bytes.subarray(start, start + hashStepBytes));
    }
    return hash.digest('base64');
  }

  close(): void {
    this.#isClosed = true;
    for (const child of this.#children) child.kill('SIGKILL');
  }

  #readInChild(bytes: Uint8Array, signal: AbortSignal): Promise<string> {
    const { timeoutMs, charactersMax } = this.#limits;
    return new Promise((resolve, reject) => {
      const child = this.#spawn();
      this.#children.add(child);
      const chunks: Buffer[] = [];
      let length = 0;
      let failure: unknown;
      const end = (error: unknown): void => {
        failure ??= error;
        child.kill('SIGKILL');
      };
      const onAbort = (): void => end(signal.reason);
      signal.addEventListener('abort', onAbort, { once: true });
      const timer = setTimeout(() => end(boundsProcessorTime ? machineBusy() : tooSlow()), timeoutMs);
      lowerPriority(child, niceness);
      const watch = watched(child, ({ memoryBytes, processorSeconds }) => {
        if (memoryBytes > this.#limits.memoryBytesMax) end(tooMuchMemory());
        if (processorSeconds >= longSeconds) lowerPriority(child, nicenessOfLong);
      });
      child.stdout!.on('data', (chunk: Buffer) => {
        length += chunk.length;
        // At most four bytes per character, plus the first line.
        if (length > 4 * charactersMax + 1_024) end(new UnreadablePdf('has more text than can be read'));
        else chunks.push(chunk);
      });
      // The child may exit before it has read everything.
      child.stdin!.on('error', () => undefined);
      child.stdin!.end(bytes);
      child.on('error', (error) => end(error));
      child.on('close', (code, endedBy) => {
        this.#children.delete(child);
        clearTimeout(timer);
        clearInterval(watch);
        signal.removeEventListener('abort', onAbort);
        if (failure !== undefined) reject(failure as Error);
        else if (endedBy === 'SIGXCPU') reject(tooSlow());
        // Most likely out of memory: what a file does to its reader is its own fault.
        else if (code !== 0) reject(tooMuchMemory());
        else answer(Buffer.concat(chunks).toString('utf8'), this.#limits, resolve, reject);
      });
    });
  }

  #spawn(): ChildProcess {
    const { pagesMax, charactersMax, memoryBytesMax, processorSecondsMax } = this.#limits;
    const program = fileURLToPath(entryUrl('pdf-child'));
    const heapMegabytes = Math.floor(memoryBytesMax / 2 / 1_048_576);
    const command = [
      process.execPath,
      `--max-old-space-size=${heapMegabytes}`,
      '--disallow-code-generation-from-strings',
      program,
      String(pagesMax),
      String(charactersMax),
    ];
    // The environment is empty, so it has no secrets, and its only output is its answer.
    const options = { env: {}, stdio: ['pipe', 'pipe', 'ignore'] as ['pipe', 'pipe', 'ignore'], windowsHide: true };
    if (!boundsProcessorTime) return spawn(command[0]!, command.slice(1), options);
    // Allocations outside the heap, such as a stream that inflates a thousandfold, are limited by the system where possible; and a crash
    // leaves no core dump with the file on the disk. If memory runs out all the same, the kernel kills this process before the service.
    const victim = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj';
    const bounds = `${victim}; ulimit -c 0; ulimit -d ${Math.floor(memoryBytesMax / 1_024)} 2>/dev/null`;
    const limit = `${bounds}; ulimit -S -t ${processorSecondsMax} 2>/dev/null; exec "$@"`;
    return spawn('/bin/sh', ['-c', limit, 'sh', ...command], options);
  }
}

function answer(
  text: string,
  { pagesMax, charactersMax }: PdfLimits,
  resolve: (text: string) => void,
  reject: (error: Error) => void,
): void {
  const end = text.indexOf('\n');
  const verdict = JSON.parse(text.slice(0, end)) as PdfVerdict;
  switch (verdict.kind) {
    case 'text':
      return resolve(text.slice(end + 1));
    case 'damaged':
      return reject(new UnreadablePdf('is damaged or truncated'));
    case 'encrypted':
      return reject(new UnreadablePdf('is encrypted; send it without a password'));
    case 'too-many-pages':
      return reject(new UnreadablePdf(`has ${verdict.pages} pages, and at most ${pagesMax} are read`));
    case 'too-long':
      return reject(new UnreadablePdf(`has more than ${charactersMax} characters of text`));
    case 'no-text':
      return resolve('');
  }
}

/** Only the first line of a PDF: it has no page. */
const isBlank = (bytes: Uint8Array): boolean =>
  bytes.length < 32 && /^%PDF-\d\.\d\s*$/.test(Buffer.from(bytes).toString('latin1'));

/** Uses a shell to set limits. */
const boundsProcessorTime = process.platform !== 'win32';

const machineBusy = (): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'The PDF could not be read in time, because the server is busy. Try again shortly.',
    {
      retryAfterSeconds: 1,
    },
  );

const tooSlow = (): UnreadablePdf => new UnreadablePdf('takes too long to read');

const tooMuchMemory = (): UnreadablePdf => new UnreadablePdf('needs too much memory to read');

/** Called right after the start: the threads that the child creates later inherit it. */
function lowerPriority({ pid }: ChildProcess, to: number): void {
  try {
    if (pid !== undefined) setPriority(pid, to);
  } catch {
    // It has exited, or the system does not allow it.
  }
}

const lookMs = 100;
const pageBytes = 4_096;
const ticksPerSecond = 100;

/** Polls the child's usage where the system reports it; elsewhere the limits of its heap and its time must suffice. */
function watched(
  child: ChildProcess,
  look: (use: { readonly memoryBytes: number; readonly processorSeconds: number }) => void,
): NodeJS.Timeout {
  return setInterval(() => {
    readFile(`/proc/${child.pid}/stat`, 'latin1').then(
      (text) => {
        // proc(5): fields 14, 15 and 24.
        const fields = statFields(text);
        const [user, system, pages] = [fields[11], fields[12], fields[21]].map(Number);
        look({ memoryBytes: pages! * pageBytes, processorSeconds: (user! + system!) / ticksPerSecond });
      },
      () => undefined,
    );
  }, lookMs);
}

const atCapacity = (waitingMax: number): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'Too many PDFs are being read at the moment. Try again shortly.',
    atCap(waitingMax, 1),
  );
