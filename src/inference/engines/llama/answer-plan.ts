import { continuesLast } from '../../../generation/request.ts';
import type { Effort } from '../../../generation/request.ts';
import { harmonyMarks } from '../../output-parsers/harmony.ts';
import { literalsOf } from '../../output-parsers/format.ts';
import type { OutputParserOptions } from '../../output-parsers/output-parser.ts';
import { reasoningBudgetTokens } from '../reasoning-effort.ts';
import type { OutputForm, ThoughtOptions } from './choice-output.ts';
import type { LlamaModel } from './llama-model.ts';
import type { ChatTemplate } from './chat-template.ts';
import type { JobConstraint } from './job.ts';
import type { Work } from './protocol.ts';

/** How the answers to a request begin, and how their text is parsed. */
export interface AnswerPlan {
  readonly opening: readonly number[];
  readonly constraintFrom: JobConstraint['from'];
  readonly form: Pick<OutputForm, 'literals' | 'reply' | 'thought' | 'constrainsAnswer' | 'mayEndFirst'>;
}

/** What an answer must contain, and what it may contain. */
export interface AnswerDemand {
  /** Tools that may be called. */
  readonly calls: OutputParserOptions['calls'];
  readonly gbnf: string | undefined;
  /** What the grammar covers: the answer's text, the calls that it must make, or text with any calls that the model begins. */
  readonly holds: 'text' | 'calls' | 'begun-calls';
}

/**
 * Decides, for a model and its template, how reasoning is handled (§4.2.5): whether the prompt begins it, its budget, what ends it, and
 * from where on a constraint holds.
 */
export class AnswerPlanner {
  readonly #model: Pick<LlamaModel, 'tokenize' | 'tokenTraits' | 'tokenText'>;
  readonly #template: ChatTemplate | undefined;
  readonly #startsInThought = new Map<Effort, boolean>();
  /** Texts of the control tokens around reasoning and calls. */
  readonly #literals: ReadonlyMap<number, string>;
  #specialTexts: ReadonlyMap<number, string> | undefined;
  /** For a text answer, and for one of calls: Harmony distinguishes them before the first character. */
  readonly #textIds: AnswerIds;
  readonly #callIds: AnswerIds;

  constructor(model: Pick<LlamaModel, 'tokenize' | 'tokenTraits' | 'tokenText'>, template: ChatTemplate | undefined) {
    this.#model = model;
    this.#template = template;
    const { marks, start, end, answer, next, opening } = this.#words();
    const ids = (text: string): readonly number[] => [...model.tokenize(text, true)];
    this.#textIds = { start: ids(start), end: ids(end + answer), answer: ids(answer), opening: ids(opening) };
    this.#callIds = { start: ids(start), end: ids(end + next), answer: ids(next), opening: [] };
    this.#literals = this.#literalsOf([
      ...(template === undefined ? [] : literalsOf(template.shape.calls)),
      marks.start,
      marks.end,
    ]);
  }

  /** Returns the tokens whose text a reader does not see, although llama.cpp's grammars do. */
  hiddenTokens(vocabularySize: number, isEnd: (id: number) => boolean): readonly number[] {
    return Array.from({ length: vocabularySize }, (_, id) => id).filter(
      (id) => this.#model.tokenTraits(id).kind === 'control' && !isEnd(id) && !this.#literals.has(id),
    );
  }

  /** Returns the texts of all control tokens, for answers that show them. */
  specialTexts(vocabularySize: number): ReadonlyMap<number, string> {
    this.#specialTexts ??= new Map(
      Array.from({ length: vocabularySize }, (_, id) => id)
        .filter((id) => this.#model.tokenTraits(id).kind === 'control')
        .map((id) => [id, this.#model.tokenText(id)]),
    );
    return this.#specialTexts;
  }

  plan(work: Work, { calls, gbnf, holds }: AnswerDemand): AnswerPlan {
    const { effort, reasoningForm, reasoningRoomTokens, prompt } = work;
    const template = prompt.type === 'messages' ? this.#template : undefined;
    const shape = template?.shape;
    // An answer that continues the client's words has already begun.
    const thinks = shape !== undefined && shape.thinking.type !== 'none' && !continuesLast(prompt);
    const startsInThought = template !== undefined && thinks && this.#startsIn(effort, template);
    // §4.2.5(4): a model that cannot be kept from reasoning may reason, and its reasoning is hidden.
    const wantsThought = effort !== 'none' || (reasoningForm === 'hidden' && startsInThought);
    const isConstrained = gbnf !== undefined && holds !== 'begun-calls';
    const words = holds === 'text' ? this.#textIds : this.#callIds;
    const thought: ThoughtOptions = {
      form: reasoningForm,
      budgetTokens: effort === 'none' && reasoningForm === 'hidden' ? undefined : reasoningBudgetTokens[effort],
      roomTokens: thinks && wantsThought ? reasoningRoomTokens : 0,
      endsAtOnce: startsInThought && !wantsThought,
      endIds: words.end,
      answerIds: words.answer,
      marks: this.#words().marks,
    };
    // A constrained answer without reasoning is text from its first character, whatever it looks like.
    const isPlain = !thinks || (isConstrained && !wantsThought && !startsInThought && shape.thinking.type === 'marks');
    const reply =
      shape === undefined || (isPlain && calls === undefined)
        ? undefined
        : {
            shape: isPlain ? { ...shape, thinking: { type: 'none' as const } } : shape,
            startsInThought,
            calls,
          };
    const form = { literals: this.#literals, reply, thought };
    const beginning = this.#beginning(thinks && isConstrained, wantsThought, startsInThought, words);
    if (gbnf !== undefined && !isConstrained && thinks && beginning.opening.length === 0) {
      // Whether the model will reason is unknown; the answer may also end before it begins.
      const constraintFrom = 'reader';
      return { opening: [], constraintFrom, form: { ...form, constrainsAnswer: true, mayEndFirst: true } };
    }
    return {
      ...beginning,
      form: { ...form, constrainsAnswer: isConstrained && thinks && wantsThought, mayEndFirst: false },
    };
  }

  #beginning(
    isBound: boolean,
    wantsThought: boolean,
    startsInThought: boolean,
    words: AnswerIds,
  ): Pick<AnswerPlan, 'opening' | 'constraintFrom'> {
    if (startsInThought)
      return wantsThought
        ? { opening: [], constraintFrom: 'reader' }
        : { opening: words.end, constraintFrom: 'opening' };
    if (!isBound) return { opening: [], constraintFrom: 'opening' };
    // Where only the constraint's text is allowed, a model cannot start reasoning, so reasoning is begun for it.
    return wantsThought
      ? { opening: words.start, constraintFrom: 'reader' }
      : { opening: words.opening, constraintFrom: 'opening' };
  }

  #startsIn(effort: Effort, template: ChatTemplate): boolean {
    let starts = this.#startsInThought.get(effort);
    if (starts === undefined) {
      starts = template.startsInThought(effort);
      this.#startsInThought.set(effort, starts);
    }
    return starts;
  }

  #words() {
    const thinking = this.#template?.shape.thinking;
    switch (thinking?.type) {
      case undefined:
      case 'none':
        return { marks: plainMarks, start: '', end: '', answer: '', next: '', opening: '' };
      case 'marks':
        return { marks: thinking.marks, ...thinking.marks, answer: '', next: '', opening: '' };
      case 'channels':
        return {
          marks: plainMarks,
          start: harmonyMarks.thoughtBegin,
          end: harmonyMarks.thoughtEnd,
          answer: harmonyMarks.nextMessage + harmonyMarks.answerBegin,
          next: harmonyMarks.nextMessage,
          opening: harmonyMarks.answerBegin,
        };
    }
  }

  #literalsOf(literals: readonly string[]): ReadonlyMap<number, string> {
    const found = new Map<number, string>();
    for (const literal of literals) {
      for (const id of this.#model.tokenize(literal, true)) {
        if (this.#model.tokenTraits(id).kind === 'control') found.set(id, this.#model.tokenText(id));
      }
    }
    return found;
  }
}

/** The ids that begin reasoning; that end it and begin the answer; and that only begin the answer, after reasoning or without it. */
interface AnswerIds {
  readonly start: readonly number[];
  readonly end: readonly number[];
  readonly answer: readonly number[];
  readonly opening: readonly number[];
}

const plainMarks = { start: '<think>', end: '</think>' };
