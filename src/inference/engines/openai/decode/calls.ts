import { ArgumentsGuard, UnboundFault } from '../answer-guard.ts';
import { StreamFault } from '../sse.ts';
import type { ChoiceEvents } from './choice-events.ts';
import { isObject, text, type JsonObject } from './json.ts';
import type { DecoderOptions } from './options.ts';

const toolCallsMax = 256;
const toolNameCharactersMax = 1_024;
const earlyArgumentsCharactersMax = 64 * 1024;

/** The tool calls of one choice, from their fragments. */
export class ChoiceCalls {
  readonly #events: ChoiceEvents;
  readonly #options: DecoderOptions;
  /** The last call at each of the backend's indexes. */
  readonly #byIndex = new Map<number, CallState>();
  readonly #all: CallState[] = [];
  #lastIndex = 0;
  #named = 0;

  constructor(events: ChoiceEvents, options: DecoderOptions) {
    this.#events = events;
    this.#options = options;
  }

  /** How many calls have a name. */
  get named(): number {
    return this.#named;
  }

  /** One fragment, at this position of its list. `false`: it begins a second call where the answer ends with the first. */
  read(raw: JsonObject, position: number): boolean {
    const call = this.#callAt(raw, position);
    if (this.#options.takesOneCall && call.number === undefined && this.#named > 0) return false;
    const fn = isObject(raw['function']) ? raw['function'] : {};
    const name = nameOf(raw);
    const piece =
      typeof fn['arguments'] === 'object' && fn['arguments'] !== null
        ? JSON.stringify(fn['arguments'])
        : text(fn['arguments']);
    if (call.number !== undefined) {
      if (piece !== '') this.#arguments(call.number, call, piece);
      return true;
    }
    call.id ??= idOf(raw);
    call.early += piece;
    if (call.early.length > earlyArgumentsCharactersMax) throw new StreamFault('expected a name in a tool call');
    if (name !== '') this.#begin(call, name);
    return true;
  }

  /** Throws where a call has no name: no more fragments follow. */
  end(): void {
    if (this.#all.some((call) => call.number === undefined)) throw new StreamFault('expected a name in a tool call');
  }

  /** Checks that a forced call is there, and whole. */
  checkWhole(): void {
    if (this.#options.bound?.type !== 'call') return;
    if (this.#named === 0) throw new UnboundFault('the forced tool call is missing', false);
    for (const call of this.#all) call.guard?.end();
  }

  /** Clients parse them, so empty arguments become an object without fields. */
  completeArguments(): void {
    for (const call of this.#all)
      if (call.number !== undefined && !call.hasArguments) this.#arguments(call.number, call, '{}');
  }

  #begin(call: CallState, name: string): void {
    if (name.length > toolNameCharactersMax) throw new StreamFault('the name of a tool is too long');
    const { choice } = this.#events;
    const number = this.#named++;
    call.number = number;
    const id = toolCallId(call.id, this.#options.requestId, choice, number);
    this.#events.emit(name, { type: 'tool-call', choice, call: number, id, name });
    const { early } = call;
    call.early = '';
    if (early !== '') this.#arguments(number, call, early);
  }

  #arguments(number: number, call: CallState, piece: string): void {
    call.hasArguments = true;
    if (this.#options.bound?.type === 'call') (call.guard ??= new ArgumentsGuard()).arguments(piece);
    this.#events.emit(piece, { type: 'tool-arguments', choice: this.#events.choice, call: number, text: piece });
  }

  /** The call that a fragment belongs to. A backend's index only distinguishes calls; ours count from 0 without gaps. */
  #callAt(raw: JsonObject, position: number): CallState {
    const index = raw['index'] ?? this.#guessedIndex(raw, position);
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= toolCallsMax) {
      throw new StreamFault('the index of a tool call is out of range');
    }
    let call = this.#byIndex.get(index as number);
    if (call === undefined || isAnother(call, raw)) {
      if (this.#all.length >= toolCallsMax) throw new StreamFault('there are too many tool calls');
      call = {
        index: index as number,
        number: undefined,
        id: undefined,
        early: '',
        hasArguments: false,
        guard: undefined,
      };
      this.#all.push(call);
      this.#byIndex.set(index as number, call);
      this.#lastIndex = index as number;
    }
    return call;
  }

  /** Without an index: a fragment with a new id or a name begins a call, any other continues that of its id, or the last. */
  #guessedIndex(raw: JsonObject, position: number): number {
    if (this.#byIndex.size === 0) return position;
    const id = idOf(raw);
    const known = id === undefined ? undefined : this.#all.findLast((call) => call.id === id);
    if (known !== undefined) return known.index;
    return id !== undefined || nameOf(raw) !== '' ? this.#lastIndex + 1 : this.#lastIndex;
  }
}

interface CallState {
  /** The backend's index. */
  readonly index: number;
  /** Our number; known when the name is. */
  number: number | undefined;
  id: string | undefined;
  /** Arguments that came before the name. */
  early: string;
  hasArguments: boolean;
  guard: ArgumentsGuard | undefined;
}

/** Some servers give every call the same index; a fragment that begins another call has another id, and a name. */
function isAnother(call: CallState, raw: JsonObject): boolean {
  const id = idOf(raw);
  return call.number !== undefined && call.id !== undefined && id !== undefined && id !== call.id && nameOf(raw) !== '';
}

function idOf(raw: JsonObject): string | undefined {
  return typeof raw['id'] === 'string' && raw['id'] !== '' ? raw['id'] : undefined;
}

function nameOf(raw: JsonObject): string {
  return isObject(raw['function']) ? text(raw['function']['name']) : '';
}

/** An id in the form that clients expect: `call_…`, short, visible ASCII. */
function toolCallId(raw: string | undefined, requestId: string, choice: number, call: number): string {
  if (raw === undefined || !/^[\x21-\x7e]{1,200}$/.test(raw)) return `call_${requestId}${choice}_${call}`;
  // vLLM's are `chatcmpl-tool-…`.
  return raw.startsWith('call_') ? raw : `call_${raw.replace(/^chatcmpl-tool-/, '')}`;
}
