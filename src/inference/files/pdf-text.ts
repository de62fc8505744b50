import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { entryUrl } from '../../platform/entries.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import { Semaphore } from '../../platform/semaphore.ts';
import type { PdfVerdict } from './pdf-child.ts';

export interface PdfLimits {
  readonly pagesMax: number;
  readonly charactersMax: number;
  readonly timeoutMs: number;
  /** Memory of the child in total. */
  readonly memoryBytesMax: number;
  /** PDFs that are read concurrently. */
  readonly childrenMax: number;
  /** PDFs that may wait; further ones are refused. */
  readonly waitingMax: number;
}

export const defaultPdfLimits: PdfLimits = {
  pagesMax: 1_000,
  charactersMax: 10_000_000,
  timeoutMs: 20_000,
  memoryBytesMax: 1_073_741_824,
  childrenMax: 2,
  waitingMax: 32,
};

/** A file that holds no text, with the reason in words for the client. */
export class UnreadablePdf extends Error {
  override readonly name = 'UnreadablePdf';
}

/**
 * The text of PDFs. Each is read by a process of its own, which has a limit of memory and time and is ended when it is over, so
 * that a hostile file harms only itself, and customers' files stay apart. It starts in 0.3 s, and PDFs are rare.
 */
export class PdfTexts {
  readonly #limits: PdfLimits;
  readonly #children = new Set<ChildProcess>();
  readonly #semaphore: Semaphore;
  #isClosed = false;

  constructor(limits: PdfLimits = defaultPdfLimits) {
    this.#limits = limits;
    const { childrenMax, waitingMax } = limits;
    this.#semaphore = new Semaphore(childrenMax, { waitingMax, refusal: () => atCapacity(waitingMax) });
  }

  /** Number of live processes. */
  get count(): number {
    return this.#children.size;
  }

  /**
   * Rejects with `UnreadablePdf`, with `backend_at_capacity` when too many wait, or with the reason of the signal. A document
   * without text, which a scan has none of, gives none: that is no failure.
   */
  async read(bytes: Uint8Array, signal: AbortSignal): Promise<string> {
    if (isBlank(bytes)) return '';
    const release = await this.#semaphore.acquire(signal);
    try {
      if (this.#isClosed) throw atCapacity(this.#limits.waitingMax);
      return await this.#readInChild(bytes, signal);
    } finally {
      release();
    }
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
      const timer = setTimeout(() => end(new UnreadablePdf('takes too long to read')), timeoutMs);
      const watch = watchMemory(child, this.#limits.memoryBytesMax, () => end(tooMuchMemory()));
      child.stdout!.on('data', (chunk: Buffer) => {
        length += chunk.length;
        // Four bytes for a character at most, and the first line.
        if (length > 4 * charactersMax + 1_024) end(new UnreadablePdf('has more text than can be read'));
        else chunks.push(chunk);
      });
      // It may end before it has read everything.
      child.stdin!.on('error', () => undefined);
      child.stdin!.end(bytes);
      child.on('error', (error) => end(error));
      child.on('close', (code) => {
        this.#children.delete(child);
        clearTimeout(timer);
        clearInterval(watch);
        signal.removeEventListener('abort', onAbort);
        if (failure !== undefined) reject(failure as Error);
        // Out of memory, most likely: what a file makes of its reader is its own fault.
        else if (code !== 0) reject(tooMuchMemory());
        else answer(Buffer.concat(chunks).toString('utf8'), this.#limits, resolve, reject);
      });
    });
  }

  #spawn(): ChildProcess {
    const { pagesMax, charactersMax, memoryBytesMax } = this.#limits;
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
    // No variable of ours, so no secret; and nothing that it says anywhere but in its answer.
    const options = { env: {}, stdio: ['pipe', 'pipe', 'ignore'] as ['pipe', 'pipe', 'ignore'], windowsHide: true };
    if (process.platform === 'win32') return spawn(command[0]!, command.slice(1), options);
    // What is allocated outside of the heap, such as a stream that inflates a thousandfold, is bounded by the system where it can
    // be; and no crash leaves the file on the disk.
    const limit = `ulimit -c 0; ulimit -d ${Math.floor(memoryBytesMax / 1_024)} 2>/dev/null; exec "$@"`;
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

/** The first line of a PDF and nothing more: there is no page in it. */
const isBlank = (bytes: Uint8Array): boolean =>
  bytes.length < 32 && /^%PDF-\d\.\d\s*$/.test(Buffer.from(bytes).toString('latin1'));

const tooMuchMemory = (): UnreadablePdf => new UnreadablePdf('needs too much memory to read');

const memoryLookMs = 100;
const pageBytes = 4_096;

/** Where the system tells how much memory a process has; elsewhere the limit of its heap must do. */
function watchMemory(child: ChildProcess, bytesMax: number, exceeded: () => void): NodeJS.Timeout {
  return setInterval(() => {
    readFile(`/proc/${child.pid}/statm`, 'latin1').then(
      (text) => {
        if (Number(text.split(' ')[1]) * pageBytes > bytesMax) exceeded();
      },
      () => undefined,
    );
  }, memoryLookMs);
}

const atCapacity = (waitingMax: number): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'Too many PDFs are being read at the moment. Try again shortly.',
    atCap(waitingMax, 1),
  );
