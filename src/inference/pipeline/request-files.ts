import { setImmediate } from 'node:timers/promises';
import { combineSignals } from '../../platform/combine-signals.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import { cleanName } from '../files/file-name.ts';
import type { FileRow, Files } from '../files/files.ts';
import { kindOf, TypeSniffer } from '../files/media-type.ts';
import { UnreadablePdf } from '../files/pdf-text.ts';
import type { PdfTexts } from '../files/pdf-text.ts';
import type { ImagePart, Part } from '../../generation/request.ts';
import type { FetchSettings, ImageFetcher } from '../images/fetcher.ts';
import { checkUrl, fetchedDocument } from '../../platform/outbound/check-url.ts';
import { decodeStep, decodeStepCharacters, notBase64 } from '../images/data-uri.ts';
import { FairPlaces } from '../../platform/fair-places.ts';
import { imageFrom } from './request-images.ts';

export type FilePart = Extract<Part, { type: 'file' }>;

/** The fields of a request that decide which files it may name. */
export interface FileCall {
  readonly accountId: string;
  readonly zdr: boolean;
  readonly signal: AbortSignal;
  /** Rules for fetching documents. */
  readonly fetching: FetchSettings;
  /** Reports the time spent waiting for the documents' servers. */
  waited(ms: number): void;
  /** Reserves memory beyond the body; throws `backend_at_capacity` when there is none left. */
  holdBytes(bytes: number): void;
}

/** Files in one request: checked along with images, and read behind limits and credit, before the length is decided (decision 052). */
export interface FileResolver {
  /**
   * Checks whether the file may be used, and returns its kind. Reads only the first bytes of inline files; the kind of a stored file has to
   * be looked up, which is work. Throws `ApiError` naming the field.
   */
  check(part: FilePart): 'image' | 'text' | 'stored';
  /** Returns the kind of a file. Looks stored files up. */
  find(part: FilePart): Promise<'image' | 'text'>;
  /** Returns the content; only for parts that have been found. */
  read(part: FilePart): Promise<Part>;
}

/** Files decoded at once, in total and per account, and those that wait for it. */
const readingMax = 4;
const readingPerAccountMax = 2;
const waitingMax = 64;
const waitMsMax = 10_000;
/** Time limit for one document. */
const fetchTimeoutMs = 10_000;

/** Turns files that requests reference, or contain, into text and images (contracts §1.4). */
export class FileParts {
  readonly #files: Pick<Files, 'find' | 'read'>;
  readonly #pdfs: Pick<PdfTexts, 'read'>;
  readonly #fetcher: Pick<ImageFetcher, 'fetch'>;
  readonly places = new FairPlaces({
    placesMax: readingMax,
    perAccountMax: readingPerAccountMax,
    waitingMax,
    waitMsMax,
    refusal: atCapacity,
  });

  constructor(files: Pick<Files, 'find' | 'read'>, pdfs: Pick<PdfTexts, 'read'>, fetcher: Pick<ImageFetcher, 'fetch'>) {
    this.#files = files;
    this.#pdfs = pdfs;
    this.#fetcher = fetcher;
  }

  for(call: FileCall): FileResolver {
    const found = new Map<FilePart, Source>();
    return {
      check: (part) => {
        const source = sourceOf(part, call);
        return 'fileId' in source ? 'stored' : kindIn(source);
      },
      find: async (part) => {
        const named = sourceOf(part, call);
        const source = 'fileId' in named ? await this.#lookedUp(named.fileId, part.at, call) : named;
        found.set(part, source);
        return kindIn(source);
      },
      read: async (part) => {
        const source = found.get(part);
        if (source === undefined) throw new Error('a file is read after it has been found');
        return await this.#read(part, source, call);
      },
    };
  }

  async #lookedUp(fileId: string, at: string, { accountId }: FileCall): Promise<Source> {
    const file = await this.#files.find(accountId, fileId);
    if (file === undefined) throw refused('does not exist in this account', at);
    const kind = kindOf(file.mediaType);
    if (kind === 'other') throw refused(unusable, at);
    return { kind, file };
  }

  async #read(part: FilePart, source: Source, call: FileCall): Promise<Part> {
    const { accountId, signal } = call;
    const { at } = part;
    // Outside of the places: servers may be slow, and have places of their own, as PDFs do.
    const fetched = 'url' in source ? await this.#fetched(source.url, at, call) : undefined;
    const decodedPart = await this.places.hold(accountId, signal, () => this.#content(part, source, fetched, call));
    if (!Buffer.isBuffer(decodedPart)) return decodedPart;
    return textPart(part, source, await this.#textOfPdf(decodedPart, at, call));
  }

  /** The content, or the bytes of a PDF. */
  async #content(part: FilePart, source: Source, fetched: Buffer | undefined, call: FileCall): Promise<Part | Buffer> {
    const { at } = part;
    const bytes =
      'file' in source
        ? await this.#stored(source.file, at, call)
        : 'url' in source
          ? fetched!
          : await decoded(source.base64, at, call);
    switch (source.kind === 'fetched' ? kindOfDocument(bytes, at) : source.kind) {
      case 'image': {
        call.holdBytes(Math.ceil(bytes.length / 3) * 4);
        const image: ImagePart | string = await imageFrom(bytes, at, call.signal);
        if (typeof image === 'string') throw refused(image, at, 'image');
        return image;
      }
      case 'pdf':
        return bytes;
      case 'text':
        return textPart(part, source, await textOf(bytes, at, call.signal));
    }
  }

  async #stored(file: FileRow, at: string, { signal, holdBytes }: FileCall): Promise<Buffer> {
    holdBytes(file.bytes);
    const stream = await this.#files.read(file, signal);
    if (stream === undefined) throw refused('does not exist: it has just been deleted', at);
    const bytes = Buffer.allocUnsafeSlow(file.bytes);
    let length = 0;
    try {
      for await (const chunk of stream) {
        const piece = chunk as Buffer;
        if (length + piece.length > bytes.length) throw new Error('a file has grown since it was stored');
        length += piece.copy(bytes, length);
      }
    } catch (error) {
      // An aborted stream fails with its own error.
      throw signal.aborted ? signal.reason : error;
    } finally {
      stream.destroy();
    }
    if (length !== bytes.length) throw new Error('a file has shrunk since it was stored');
    return bytes;
  }

  async #fetched(url: string, at: string, call: FileCall): Promise<Buffer> {
    const { accountId, fetching, signal, holdBytes, waited } = call;
    const begunMs = performance.now();
    const late = AbortSignal.timeout(fetchTimeoutMs);
    try {
      const ending = combineSignals([signal, late]);
      return await this.#fetcher.fetch(url, { ...fetching, accountId }, at, holdBytes, ending, fetchedDocument);
    } catch (error) {
      if (error !== late.reason || signal.aborted) throw error;
      const words = `The document could not be fetched within ${fetchTimeoutMs / 1_000} seconds.`;
      throw new ApiError('model_request_rejected', words, { param: at });
    } finally {
      waited(performance.now() - begunMs);
    }
  }

  async #textOfPdf(bytes: Buffer, at: string, { accountId, signal }: FileCall): Promise<string> {
    try {
      return await this.#pdfs.read(accountId, bytes, signal);
    } catch (error) {
      if (error instanceof UnreadablePdf) throw refused(error.message, at, 'PDF');
      throw error;
    }
  }
}

/** Returns the kind and source of a file; only the kind of a stored file is not known yet. */
function sourceOf({ fileId, data, url, at }: FilePart, call: FileCall): Source | { readonly fileId: string } {
  if (url !== undefined) {
    checkUrl(url, call.fetching.rules, at, fetchedDocument);
    return { kind: 'fetched', url };
  }
  if (fileId === undefined && data === undefined) throw refused('needs an id or data', at);
  if (fileId === undefined) return inlineSource(data ?? '', at);
  if (data !== undefined) throw refused('has an id and data; send one of the two', at);
  // Reliability part 4: a stored file is retained data.
  if (call.zdr) {
    throw new ApiError('unsupported_parameter', 'Stored files cannot be used with zero data retention.', { param: at });
  }
  return { fileId };
}

const kindIn = ({ kind }: Source): 'image' | 'text' => (kind === 'image' ? 'image' : 'text');

const atCapacity = (max: number): ApiError => {
  const message = 'Too many files of requests are being read at the moment. Try again shortly.';
  return new ApiError('backend_at_capacity', message, atCap(max, 1));
};

type Source =
  | { readonly kind: 'image' | 'pdf' | 'text'; readonly file: FileRow }
  | { readonly kind: 'image' | 'pdf' | 'text'; readonly base64: string }
  /** The fetched bytes decide its type. */
  | { readonly kind: 'fetched'; readonly url: string };

/** Characters of base64 that identify a file's type, unless it is text. */
const headCharacters = 64;

function kindOfDocument(bytes: Buffer, at: string): 'pdf' | 'text' {
  const sniffer = new TypeSniffer();
  sniffer.push(bytes.subarray(0, headCharacters));
  const kind = kindOf(sniffer.mediaType(''));
  if (kind === 'image') throw refused('is an image; send it as an image', at, 'document');
  return kind === 'pdf' ? 'pdf' : 'text';
}

/** Parses a data URI with base64, or bare base64, as in the vendor's own examples. The bytes decide the type. */
function inlineSource(data: string, at: string): Source {
  const [head, parameters] = /^data:([^,]{0,200}),/i.exec(data.slice(0, 256)) ?? ['', 'base64'];
  if (!/(^|;)base64$/i.test(parameters ?? '') || /^data:/i.test(data.slice(head.length, head.length + 5))) {
    throw refused('must be a data URI of base64, such as data:application/pdf;base64,…', at);
  }
  const base64 = data.slice(head.length);
  if (base64.length % 4 !== 0) throw refused(notBase64(base64), at);
  const sniffer = new TypeSniffer();
  sniffer.push(Buffer.from(base64.slice(0, headCharacters), 'base64'));
  const kind = kindOf(sniffer.mediaType(''));
  // Whether the rest is text too is checked when it is read.
  return { kind: kind === 'other' ? 'text' : kind, base64 };
}

async function decoded(
  base64: string,
  at: string,
  { signal, holdBytes }: Pick<FileCall, 'signal' | 'holdBytes'>,
): Promise<Buffer> {
  const length = (base64.length / 4) * 3 - (base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0);
  holdBytes(length);
  const bytes = Buffer.allocUnsafeSlow(length);
  let used = 0;
  for (let start = 0; start < base64.length; start += decodeStepCharacters) {
    if (start > 0) {
      await setImmediate();
      signal.throwIfAborted();
    }
    const isLast = start + decodeStepCharacters >= base64.length;
    const step = base64.slice(start, start + decodeStepCharacters);
    const decodedStep = decodeStep(step, isLast);
    if (decodedStep === undefined) throw refused(notBase64(step), at);
    used += decodedStep.copy(bytes, used);
  }
  return bytes;
}

/** Bytes decoded without yielding: under a millisecond. */
const textStepBytes = 262_144;

async function textOf(bytes: Buffer, at: string, signal: AbortSignal): Promise<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const pieces: string[] = [];
  try {
    for (let start = 0; start < bytes.length; start += textStepBytes) {
      if (start > 0) {
        await setImmediate();
        signal.throwIfAborted();
      }
      const step = bytes.subarray(start, start + textStepBytes);
      if (step.includes(0)) throw refused(unusable, at);
      pieces.push(decoder.decode(step, { stream: true }));
    }
    pieces.push(decoder.decode());
  } catch (error) {
    if (error instanceof TypeError) throw refused(unusable, at);
    throw error;
  }
  return pieces.join('');
}

const unusable = 'is neither an image, a PDF, nor text in UTF-8 (plain, Markdown, CSV or JSON)';

function nameOf(source: Source): string | undefined {
  if ('file' in source) return source.file.name;
  // The last segment of the URL's path; what follows may be a secret.
  return 'url' in source ? new URL(source.url).pathname.split('/').at(-1) : undefined;
}

/** Returns the text for the model, with where it comes from. */
function textPart(part: FilePart, source: Source, text: string): Part {
  const name = cleanName(part.filename ?? nameOf(source));
  const called = name === '' ? 'Attached file' : `Attached file ${name}`;
  return { type: 'text', text: text === '' ? `${called} ${emptiness(source.kind)}` : `${called}:\n${text}` };
}

/**
 * A file that an agent has read once is in every later request: refusing it would end the conversation, and dropping it silently would make
 * the model guess.
 */
const emptiness = (kind: Source['kind']): string =>
  kind === 'pdf' ? 'is a PDF without text: it is empty, or a scan. Send its pages as images.' : 'is empty.';

const refused = (why: string, at: string, what = 'file'): ApiError =>
  new ApiError('unsupported_value', `The ${what} ${why}.`, { param: at });
