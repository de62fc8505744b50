/** A parsed chunk, which its template refills for each text that fits. */
interface FilledChunk {
  id?: unknown;
  created?: unknown;
  readonly choices: readonly [{ readonly delta: { content: string } }];
  readonly usage?: Record<string, unknown>;
}

/** The texts around the parts that differ from chunk to chunk. */
interface Shape {
  readonly afterContent: string;
  readonly holes: readonly Hole[];
  /** `undefined` if only the stream's own id and time fit. */
  readonly stream: StreamShape | undefined;
}

/** The texts around the parts that differ from stream to stream, up to the content. */
interface StreamShape {
  readonly beforeId: string;
  readonly beforeTime: string;
  readonly beforeContent: string;
}

/** A whole number in the text, and its path in the chunk. */
interface Hole {
  readonly name: string;
  /** The text between this number and the next one, or the end. */
  readonly after: string;
}

const contentStart = /"content": ?"/;
/** A request's counts: whole numbers that are complete JSON values. */
const countHole = /("(prompt_tokens|completion_tokens|total_tokens)": ?)(0|[1-9]\d{0,8})(?=[,}])/g;
/** What distinguishes the streams of one server, at the beginning of each chunk. */
const streamStart = /^(\{"id": ?")[^"\\\x00-\x1f]{1,64}("[^{}[\]]*?"created": ?)[1-9]\d{0,14}(?=[,}])/;
const countDigitsMax = 9;
const charactersMax = 64;
const probeText = 'probe';
const probeCount = 987_654_321;

/**
 * Most chunks of a stream differ only in a short text and in counts. A template is made from one parsed chunk; the next ones are
 * compared with it instead of being parsed: a third of the time, and no garbage.
 *
 * It is never more lenient than `JSON.parse`. What may differ is the inside of one string without escapes and digits of whole
 * numbers, which cannot change the structure of JSON; their positions were proved when the template was made, by parsing the same
 * text with other values in their places. Any other text does not fit.
 */
export class ChunkTemplate {
  readonly #chunk: FilledChunk;
  readonly #before: string;
  readonly #shape: Shape;

  private constructor(chunk: FilledChunk, before: string, shape: Shape) {
    this.#chunk = chunk;
    this.#before = before;
    this.#shape = shape;
  }

  /** Makes a template; `undefined` if the chunk's siblings cannot be recognized by comparison. */
  static of(text: string): ChunkTemplate | undefined {
    const start = contentStart.exec(text);
    if (start === null) return undefined;
    const from = start.index + start[0].length;
    const to = plainStringEnd(text, from);
    if (to === -1) return undefined;
    const before = text.slice(0, from);
    const rest = text.slice(to);
    const found = [...rest.matchAll(countHole)];
    const holes = found.map((match, i): Hole => {
      const after = rest.slice(match.index + match[0].length, nextHole(found[i + 1]));
      return { name: match[2]!, after };
    });
    const afterContent = rest.slice(0, nextHole(found[0]));
    const probeRest = probeText + afterContent + holes.map(({ after }, i) => `${probeCount - i}${after}`).join('');
    const chunk = parsed(text);
    if (chunk === undefined || !isProved(chunk, parsed(before + probeRest), holes)) return undefined;
    return new ChunkTemplate(chunk, before, { afterContent, holes, stream: streamOf(chunk, before, probeRest, holes) });
  }

  /** Makes a template for a chunk that differs from another stream's only in the stream's id and time, and as its siblings do. */
  static like(shape: Shape, text: string): ChunkTemplate | undefined {
    const from = shape.stream === undefined ? -1 : beginningEnd(text, shape.stream);
    const chunk = from === -1 ? undefined : parsed(text);
    if (chunk === undefined) return undefined;
    const template = new ChunkTemplate(chunk, text.slice(0, from), shape);
    return template.fill(text) === undefined ? undefined : template;
  }

  /** The parts that other streams can share, without any text of the answer; `undefined`: there are none. */
  get shape(): Shape | undefined {
    return this.#shape.stream !== undefined && isPlain(this.#chunk) ? this.#shape : undefined;
  }

  /** Returns the chunk for the text, to be read before the next call; `undefined` if the text does not fit. */
  fill(text: string): unknown {
    const before = this.#before;
    const { afterContent, holes } = this.#shape;
    if (!isAt(text, before, 0)) return undefined;
    const to = plainStringEnd(text, before.length);
    if (to === -1 || !isAt(text, afterContent, to)) return undefined;
    let at = to + afterContent.length;
    const { usage } = this.#chunk;
    for (const { name, after } of holes) {
      const end = wholeNumberEnd(text, at, countDigitsMax);
      if (end === -1 || !isAt(text, after, end)) return undefined;
      usage![name] = countOf(text, at, end);
      at = end + after.length;
    }
    if (at !== text.length) return undefined;
    this.#chunk.choices[0].delta.content = text.slice(before.length, to);
    return this.#chunk;
  }
}

/** With and without usage, from a model with and without an adapter. */
const shapesMax = 4;

/** The shapes shared by the streams of one server, so that most streams need not derive them again. */
export class ChunkShapes {
  #shapes: readonly Shape[] = [];

  /** Returns a template for the stream of this chunk. */
  templateFor(text: string): ChunkTemplate | undefined {
    for (const shape of this.#shapes) {
      const template = ChunkTemplate.like(shape, text);
      if (template !== undefined) return template;
    }
    return undefined;
  }

  keep({ shape }: ChunkTemplate): void {
    if (shape !== undefined) this.#shapes = [shape, ...this.#shapes].slice(0, shapesMax);
  }
}

/** Like `startsWith`, in an eighth of its time (Node 20), because `startsWith` compares character by character. */
const isAt = (text: string, part: string, at: number): boolean => text.lastIndexOf(part, at) === at;

/** Without the lookahead's character, a match ends where the text after the number begins. */
const nextHole = (match: RegExpExecArray | undefined): number | undefined =>
  match === undefined ? undefined : match.index + match[1]!.length;

/** Returns where a string that began at `from` ends, if it is short and has no escapes and nothing that JSON must escape. */
function plainStringEnd(text: string, from: number): number {
  const max = Math.min(text.length, from + charactersMax);
  for (let at = from; at < max; at++) {
    const code = text.charCodeAt(at);
    if (code === 34 /* " */) return at;
    if (code === 92 /* \ */ || code < 32) return -1;
  }
  return -1;
}

/** Returns where a whole number that begins at `from` ends. The text after it must be compared: the number could continue. */
function wholeNumberEnd(text: string, from: number, digitsMax: number): number {
  let at = from;
  while (at < from + digitsMax && isDigit(text.charCodeAt(at))) at++;
  const hasLeadingZero = at > from + 1 && text.charCodeAt(from) === 48;
  return at === from || hasLeadingZero ? -1 : at;
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57;

function countOf(text: string, from: number, to: number): number {
  let count = 0;
  for (let at = from; at < to; at++) count = count * 10 + (text.charCodeAt(at) - 48);
  return count;
}

function parsed(text: string): FilledChunk | undefined {
  try {
    const chunk = JSON.parse(text) as FilledChunk | null;
    const isFilled = typeof chunk?.choices?.[0]?.delta?.content === 'string' && chunk.choices.length === 1;
    return isFilled ? chunk : undefined;
  } catch {
    return undefined;
  }
}

/** Returns whether the probe is the chunk with other values at the template's positions, and nowhere else. */
function isProved(chunk: FilledChunk, probe: FilledChunk | undefined, holes: readonly Hole[]): boolean {
  if (probe?.choices[0].delta.content !== probeText) return false;
  probe.choices[0].delta.content = chunk.choices[0].delta.content;
  for (const [i, { name }] of holes.entries()) {
    const { usage } = probe;
    if (usage?.[name] !== probeCount - i || chunk.usage === undefined) return false;
    usage[name] = chunk.usage[name];
  }
  return JSON.stringify(probe) === JSON.stringify(chunk);
}

/** Returns how other streams of the server begin, proved like the rest of the template; `undefined`: that cannot be determined. */
function streamOf(
  chunk: FilledChunk,
  before: string,
  probeRest: string,
  holes: readonly Hole[],
): StreamShape | undefined {
  const [start, beforeId, beforeTime] = streamStart.exec(before) ?? [];
  if (start === undefined || beforeId === undefined || beforeTime === undefined) return undefined;
  const beforeContent = before.slice(start.length);
  const probe = parsed(`${beforeId}${probeText}${beforeTime}${probeCount}${beforeContent}${probeRest}`);
  if (probe?.id !== probeText || probe.created !== probeCount) return undefined;
  probe.id = chunk.id;
  probe.created = chunk.created;
  return isProved(chunk, probe, holes) ? { beforeId, beforeTime, beforeContent } : undefined;
}

/** Returns where the content begins in a chunk of another stream; -1: it is not such a chunk. */
function beginningEnd(text: string, { beforeId, beforeTime, beforeContent }: StreamShape): number {
  if (!isAt(text, beforeId, 0)) return -1;
  const idEnd = plainStringEnd(text, beforeId.length);
  if (idEnd === -1 || !isAt(text, beforeTime, idEnd)) return -1;
  const timeEnd = wholeNumberEnd(text, idEnd + beforeTime.length, 15);
  return timeEnd === -1 || !isAt(text, beforeContent, timeEnd) ? -1 : timeEnd + beforeContent.length;
}

/** Fields that may occur besides nulls and carry no text of the answer; id and time are not part of a shape. */
const plainFields = new Set([
  'id',
  'object',
  'created',
  'model',
  'system_fingerprint',
  'service_tier',
  'choices',
  'usage',
]);
const plainChoiceFields = new Set(['index', 'delta']);
const plainDeltaFields = new Set(['role', 'content']);

function isPlain(chunk: FilledChunk): boolean {
  const [choice] = chunk.choices;
  const counts: readonly unknown[] = Object.values(chunk.usage ?? {});
  return (
    saysOnly(chunk, plainFields) &&
    saysOnly(choice, plainChoiceFields) &&
    saysOnly(choice.delta, plainDeltaFields) &&
    counts.every((count) => count === null || typeof count === 'number')
  );
}

const saysOnly = (object: object, names: ReadonlySet<string>): boolean =>
  Object.entries(object).every(([name, value]) => value === null || names.has(name));
