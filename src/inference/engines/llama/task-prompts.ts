import { ApiError } from '../../../platform/errors.ts';
import type { Task } from '../../../generation/request.ts';
import type { Work } from './protocol.ts';
import { PlainTokenizer, refuseBomb } from './plain-text.ts';
import type { TaskModel } from './task-bindings.ts';

/** Turns the texts of a task into token ids; no client text becomes a token that steers the model. */
export class TaskPrompts {
  readonly #model: TaskModel;
  readonly #plain: PlainTokenizer;

  constructor(model: TaskModel) {
    this.#model = model;
    this.#plain = new PlainTokenizer(model, '');
  }

  /** Returns the ids of each input, in pieces of some milliseconds. Throws a readable refusal for an input that does not fit the window. */
  *inPieces({ prompt, task }: Pick<Work, 'prompt'> & { readonly task: Task }): Generator<void, readonly Uint32Array[]> {
    if (prompt.type === 'messages') throw new Error('a task on messages');
    const at = (index: number): string => (prompt.prompts.length === 1 ? task.field : `${task.field}[${index}]`);
    const inputs: Uint32Array[] = [];
    // Reranking reads the query with each document.
    const query = task.type === 'rank' ? yield* this.#idsOf(task.query, 'query') : [];
    for (const [index, input] of prompt.prompts.entries()) {
      const text = typeof input === 'string' ? yield* this.#idsOf(input, at(index)) : this.#validated(input, at(index));
      const ids =
        task.type === 'rank' ? this.#paired(query, text) : typeof input === 'string' ? this.#marked(text) : text;
      if (ids.length === 0) throw new ApiError('unsupported_value', 'The text is empty.', { param: at(index) });
      if (ids.length > this.#model.facts.contextLength) throw this.#tooLong(at(index), ids.length);
      inputs.push(Uint32Array.from(ids));
    }
    return inputs;
  }

  *#idsOf(text: string, param: string): Generator<void, readonly number[]> {
    refuseBomb(text, param);
    const ids: number[] = [];
    if (!(yield* this.#plain.append(ids, text, this.#model.facts.contextLength))) throw this.#tooLong(param);
    return ids;
  }

  #marked(text: readonly number[]): readonly number[] {
    const { begin, end } = this.#model.facts.marks;
    return [...begin, ...text, ...end];
  }

  #paired(query: readonly number[], document: readonly number[]): readonly number[] {
    const { pairMarks, pairTemplate } = this.#model.facts;
    if (pairTemplate === undefined)
      return [...pairMarks.begin, ...query, ...pairMarks.between, ...document, ...pairMarks.end];
    const ids: number[] = [];
    for (const piece of pairTemplate.split(/(\{query\}|\{document\})/)) {
      const some = piece === '{query}' ? query : piece === '{document}' ? document : this.#model.tokenize(piece, true);
      for (const id of some) ids.push(id);
    }
    return ids;
  }

  /** Validates ids again; the service has already checked them if the model was loaded then. */
  #validated(ids: readonly number[], param: string): readonly number[] {
    const { vocabularySize } = this.#model.facts;
    const bad = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocabularySize);
    if (bad < 0) return ids;
    throw new ApiError('unsupported_value', `A token id is not between 0 and ${vocabularySize - 1}.`, {
      param: `${param}[${bad}]`,
    });
  }

  #tooLong(param: string, promptTokens?: number): ApiError {
    const { contextLength } = this.#model.facts;
    const tokens = promptTokens === undefined ? `more than ${contextLength}` : String(promptTokens);
    return new ApiError(
      'context_length_exceeded',
      `The text has ${tokens} tokens, and the model's context window has ${contextLength}. Shorten it, or split it.`,
      {
        param,
        extra: {
          context_length_limit: contextLength,
          ...(promptTokens === undefined ? {} : { prompt_tokens: promptTokens }),
        },
      },
    );
  }
}
