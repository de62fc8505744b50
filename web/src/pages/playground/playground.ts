/**
 * The conversations of the page, side by side, and what is written for them. All of it is in the memory of the page alone: nothing
 * of it is stored but what a person asks for (`kept-system.ts`, `kept-prompts.ts`), and nothing of it is in the URL.
 */
import { ApiFailure } from '../../api/client.ts';
import { sessionKey } from '../../api/session-key.ts';
import { callsOf } from './conversation.ts';
import type { AnswerTurn, Attachment, Turn, UserTurn } from './conversation.ts';
import type { KeptPrompt } from './kept-prompts.ts';
import { keepSystem, keptSystem } from './kept-system.ts';
import { receiptOf } from './receipt.ts';
import type { Receipt } from './receipt.ts';
import { noProgress, run } from './run.ts';
import type { Progress, Request } from './run.ts';
import type { Written } from './settings.ts';

export interface Answer extends AnswerTurn {
  readonly id: number;
  readonly model: string;
  readonly state: 'running' | 'done' | 'stopped' | 'failed';
  readonly startedAt: number;
  readonly request: Request;
  readonly progress: Progress;
  readonly error: unknown;
  /** null: there is none to see; undefined: not yet. */
  readonly receipt: Receipt | null | undefined;
}

export type ShownTurn = UserTurn | Answer;
export type Conversation = readonly ShownTurn[];

/** A key, whose secret only this page has. */
export interface HeldKey {
  readonly secret: string;
  /** Of the session, and made anew when it has ended; otherwise pasted. */
  readonly isOfSession: boolean;
}

export interface PlaygroundState extends Written {
  readonly key: HeldKey | undefined;
  /** Whether the instructions are in this browser the next time. */
  readonly isSystemKept: boolean;
  readonly draft: string;
  readonly attachments: readonly Attachment[];
  /** One for each model, at most `columnsMax`. */
  readonly columns: readonly Conversation[];
  /** What a tool has returned last, by its name: the first guess for its next call. */
  readonly resultsByTool: Readonly<Record<string, string>>;
}

export const columnsMax = 3;
export const attachmentsMax = 10;

const empty: Omit<PlaygroundState, 'key'> = {
  system: '',
  isSystemKept: false,
  tools: '',
  schema: '',
  draft: '',
  attachments: [],
  columns: [[]],
  resultsByTool: {},
};

/** Makes the request of the model of a column; undefined: what is written cannot be sent. */
export type MakeRequest = (column: number, turns: readonly Turn[]) => Request | undefined;

export class Playground {
  readonly owner: string;
  #state: PlaygroundState;
  #lastId = 0;
  readonly #listeners = new Set<() => void>();
  readonly #running = new Map<number, AbortController>();

  constructor(owner: string) {
    this.owner = owner;
    const system = keptSystem(owner);
    this.#state = { ...empty, key: undefined, system: system ?? '', isSystemKept: system !== undefined };
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
  readonly state = (): PlaygroundState => this.#state;

  set(changes: Partial<Omit<PlaygroundState, 'columns'>>): void {
    this.#change({ ...this.#state, ...changes });
  }

  setSystem(system: string, isKept: boolean): void {
    const isDone = keepSystem(this.owner, isKept ? system : undefined);
    this.set({ system, isSystemKept: isKept && isDone });
  }

  /** As many conversations as models: a further one begins as the first one is. */
  showColumns(count: number): void {
    const { columns } = this.#state;
    if (columns.length >= count) return;
    const settled = columns[0]!.filter((turn) => turn.kind === 'user' || turn.state !== 'running');
    const added = Array.from({ length: count - columns.length }, () => settled);
    this.#change({ ...this.#state, columns: [...columns, ...added] });
  }

  removeColumn(at: number): void {
    const { columns } = this.#state;
    for (const turn of columns[at] ?? []) if (turn.kind === 'answer') this.#running.get(turn.id)?.abort();
    this.#change({ ...this.#state, columns: columns.filter((_, index) => index !== at) });
  }

  clear(): void {
    this.stop();
    // The instructions stay: the next conversation is with the same assistant.
    const { key, system, isSystemKept } = this.#state;
    this.#change({ ...empty, key, system, isSystemKept, columns: this.#state.columns.map(() => []) });
  }

  /** A saved prompt in place of what is there: each model has its messages. */
  restore({ system, tools, schema, draft, messages }: KeptPrompt, makeRequest: MakeRequest): void {
    this.clear();
    this.setSystem(system, this.#state.isSystemKept);
    this.set({ tools, schema, draft });
    for (const column of this.#state.columns.keys())
      for (const { role, text } of messages) {
        const turns = this.#state.columns[column]!;
        const request = role === 'user' ? undefined : makeRequest(column, turns);
        const turn: ShownTurn | undefined =
          role === 'user'
            ? { kind: 'user', text, attachments: [] }
            : request && { ...this.#answerTo(request), state: 'done', blocks: [{ kind: 'text', text }], receipt: null };
        if (turn !== undefined) this.#setTurns(column, () => [...turns, turn]);
      }
  }

  /** Sends what is written to the model of each column. */
  send(makeRequest: MakeRequest): void {
    const { draft, attachments, columns } = this.#state;
    const turn: UserTurn = { kind: 'user', text: draft, attachments };
    const isEmpty = draft.trim() === '' && attachments.length === 0;
    this.#change({
      ...this.#state,
      draft: '',
      attachments: [],
      // A column without a model is out of sight.
      columns: columns.map((turns, at) => (isEmpty || makeRequest(at, turns) === undefined ? turns : [...turns, turn])),
    });
    for (const column of columns.keys()) this.#ask(column, makeRequest);
  }

  /** Asks once more for the answer at this place of a conversation; what came after it is gone. */
  again(column: number, place: number, makeRequest: MakeRequest): void {
    this.#ask(column, makeRequest, place);
  }

  /** Asks with another text at this place of a conversation; what came after it is gone. */
  edit(column: number, place: number, text: string, makeRequest: MakeRequest): void {
    const turn = this.#state.columns[column]?.[place];
    if (turn?.kind !== 'user') return;
    this.#setTurns(column, (turns) => [...turns.slice(0, place), { ...turn, text }]);
    this.#ask(column, makeRequest);
  }

  /** Sends the results of the calls of an answer back. */
  returnResults(column: number, place: number, makeRequest: MakeRequest): void {
    this.#ask(column, makeRequest, place + 1);
  }

  setResult(column: number, place: number, callId: string, text: string): void {
    const turn = this.#state.columns[column]?.[place];
    if (turn?.kind !== 'answer') return;
    const name = callsOf(turn).find(({ id }) => id === callId)?.name ?? '';
    this.#setTurns(column, (turns) =>
      turns.map((one, at) =>
        at === place && one.kind === 'answer' ? { ...one, results: { ...one.results, [callId]: text } } : one,
      ),
    );
    this.set({ resultsByTool: { ...this.#state.resultsByTool, [name]: text } });
  }

  get isRunning(): boolean {
    return this.#running.size > 0;
  }

  /** Closes the connections: the host stops writing, and charges what it has written. */
  stop(): void {
    for (const controller of this.#running.values()) controller.abort();
  }

  /** After the first `length` turns of a conversation; the others are gone. Does nothing where nothing can be sent. */
  #ask(column: number, makeRequest: MakeRequest, length?: number): void {
    const { key, columns } = this.#state;
    const turns = (columns[column] ?? []).slice(0, length);
    const request = makeRequest(column, turns);
    if (request === undefined || key === undefined) return;
    const answer = this.#answerTo(request);
    this.#setTurns(column, () => [...turns, answer]);
    void this.#run(answer, key);
  }

  #answerTo(request: Request): Answer {
    return {
      kind: 'answer',
      id: ++this.#lastId,
      model: String(request.body['model']),
      state: 'running',
      startedAt: Date.now(),
      request,
      blocks: [],
      results: {},
      progress: noProgress,
      error: undefined,
      receipt: undefined,
    };
  }

  /** Never rejects: what goes wrong is part of the answer. */
  async #run({ id, request }: Answer, key: HeldKey): Promise<void> {
    const controller = new AbortController();
    this.#running.set(id, controller);
    // The page is drawn thirty times a second, whatever the speed of the model.
    let latest: Progress = noProgress;
    let frame: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      frame = undefined;
      this.#setAnswer(id, { progress: latest, blocks: latest.read.blocks });
    };
    let end: Partial<Answer> = { state: 'done' };
    try {
      const report = (progress: Progress): void => {
        latest = progress;
        frame ??= setTimeout(show, frameMs);
      };
      await run(request, key.secret, controller.signal, report).catch(async (error: unknown) => {
        if (!key.isOfSession || !(error instanceof ApiFailure) || error.status !== 401) throw error;
        const { secret } = await sessionKey({ isRefused: true });
        this.set({ key: { secret, isOfSession: true } });
        await run(request, secret, controller.signal, report);
      });
    } catch (error) {
      end = controller.signal.aborted ? { state: 'stopped' } : { state: 'failed', error };
    } finally {
      clearTimeout(frame);
      this.#running.delete(id);
    }
    const { blocks } = latest.read;
    const results = Object.fromEntries(
      callsOf({ blocks }).map(({ id: callId, name }) => [callId, this.#state.resultsByTool[name] ?? '']),
    );
    this.#setAnswer(id, { progress: latest, blocks, results, ...end });
    // What the host has refused has no receipt.
    const isRefused = end.error instanceof ApiFailure && end.error.status >= 400 && end.error.status < 500;
    const receipt = latest.requestId === undefined || isRefused ? undefined : await receiptOf(latest.requestId);
    this.#setAnswer(id, { receipt: receipt ?? null });
  }

  #setAnswer(id: number, changes: Partial<Answer>): void {
    this.#change({
      ...this.#state,
      columns: this.#state.columns.map((turns) =>
        turns.some((turn) => turn.kind === 'answer' && turn.id === id)
          ? turns.map((turn) => (turn.kind === 'answer' && turn.id === id ? { ...turn, ...changes } : turn))
          : turns,
      ),
    });
  }

  #setTurns(column: number, next: (turns: Conversation) => Conversation): void {
    this.#change({
      ...this.#state,
      columns: this.#state.columns.map((turns, at) => (at === column ? next(turns) : turns)),
    });
  }

  #change(state: PlaygroundState): void {
    this.#state = state;
    for (const listener of this.#listeners) listener();
  }
}

const frameMs = 33;

let kept: { readonly owner: string; readonly playground: Playground } | undefined;

/**
 * The one of a person in an account, for as long as the page is open: one may look at a receipt and come back. Nobody else who
 * signs in at the same page finds it.
 */
export function playgroundOf(owner: string): Playground {
  if (kept?.owner !== owner) {
    kept?.playground.stop();
    kept = { owner, playground: new Playground(owner) };
  }
  return kept.playground;
}
