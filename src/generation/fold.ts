import { knownUsage } from './event.ts';
import type { FinishCause, FinishReason, GenerationBatch, ReadPrompt, TokenLogprob, Usage } from './event.ts';

/** A run of one kind of content, in the order in which the model produced it. */
export type Block =
  /** `logprobs`: those of this run, if requested; the choice has all of them. */
  | { readonly type: 'text'; text: string; logprobs?: TokenLogprob[] }
  | { readonly type: 'reasoning'; text: string }
  | {
      readonly type: 'tool-call';
      readonly call: number;
      readonly id: string;
      readonly name: string;
      arguments: string;
    };

export interface Finish {
  readonly reason: FinishReason;
  readonly stopSequence: string | undefined;
  readonly stopTokenId: number | undefined;
  readonly cause: FinishCause | undefined;
}

export interface Choice {
  readonly index: number;
  /** Set if the request asked for it. */
  readonly prompt?: ReadPrompt;
  /** A task's result for the prompt; absent for answers. */
  readonly vector?: Float32Array;
  readonly score?: number;
  readonly blocks: readonly Block[];
  readonly logprobs: readonly TokenLogprob[];
  readonly tokenIds: readonly number[];
  readonly finish: Finish;
}

/** A complete answer, as assembled by `fold` from a stream. */
export interface Generation {
  readonly choices: readonly Choice[];
  readonly usage: Usage;
}

interface OpenChoice {
  prompt: ReadPrompt | undefined;
  made: Pick<Choice, 'vector' | 'score'> | undefined;
  blocks: Block[];
  logprobs: TokenLogprob[];
  tokenIds: number[];
  finish: Finish | undefined;
}

export const noUsage: Usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };

/** Assembles the batches of one stream into a complete answer. */
export class Fold {
  readonly #choices: OpenChoice[] = [];
  #usage: Usage = noUsage;

  read(batch: GenerationBatch): void {
    for (const event of batch) {
      switch (event.type) {
        case 'start':
          break;
        case 'prompt': {
          const { type: _, choice, ...prompt } = event;
          this.#open(choice).prompt = prompt;
          break;
        }
        case 'text': {
          const choice = this.#open(event.choice);
          appendText(choice.blocks, 'text', event.text);
          const last = choice.blocks.at(-1);
          const ofBlock = event.logprobs !== undefined && last?.type === 'text' ? (last.logprobs ??= []) : undefined;
          for (const logprob of event.logprobs ?? []) {
            choice.logprobs.push(logprob);
            ofBlock?.push(logprob);
          }
          for (const id of event.tokenIds ?? []) choice.tokenIds.push(id);
          break;
        }
        case 'vector':
          this.#open(event.choice).made = { vector: event.vector };
          break;
        case 'score':
          this.#open(event.choice).made = { score: event.score };
          break;
        case 'reasoning':
          appendText(this.#open(event.choice).blocks, 'reasoning', event.text);
          break;
        case 'tool-call':
          this.#open(event.choice).blocks.push({
            type: 'tool-call',
            call: event.call,
            id: event.id,
            name: event.name,
            arguments: '',
          });
          break;
        case 'tool-arguments': {
          const block = this.#open(event.choice).blocks.find(
            (candidate) => candidate.type === 'tool-call' && candidate.call === event.call,
          );
          if (block?.type !== 'tool-call') throw new Error('arguments of a tool call that was not opened');
          block.arguments += event.text;
          break;
        }
        case 'finish':
          this.#open(event.choice).finish = {
            reason: event.reason,
            stopSequence: event.stopSequence,
            stopTokenId: event.stopTokenId,
            cause: event.cause,
          };
          break;
        case 'usage':
          this.#usage = knownUsage(event.usage);
          break;
      }
    }
  }

  /** Returns the answer; throws if a choice has not finished, because a cut answer is never complete. */
  generation(): Generation {
    return {
      choices: this.#choices.map((choice, index) => {
        if (choice.finish === undefined) throw new Error(`choice ${index} has no finish`);
        return {
          index,
          ...(choice.prompt === undefined ? {} : { prompt: choice.prompt }),
          ...choice.made,
          blocks: choice.blocks,
          logprobs: choice.logprobs,
          tokenIds: choice.tokenIds,
          finish: choice.finish,
        };
      }),
      usage: this.#usage,
    };
  }

  #open(index: number): OpenChoice {
    for (let next = this.#choices.length; next <= index; next++) {
      this.#choices.push({
        prompt: undefined,
        made: undefined,
        blocks: [],
        logprobs: [],
        tokenIds: [],
        finish: undefined,
      });
    }
    const choice = this.#choices[index];
    if (choice === undefined) throw new Error('no such choice');
    if (choice.finish !== undefined) throw new Error(`an event follows the finish of choice ${index}`);
    return choice;
  }
}

function appendText(blocks: Block[], type: 'text' | 'reasoning', text: string): void {
  // Such a delta carries token ids or probabilities; it neither begins nor ends a block.
  if (text === '') return;
  const last = blocks.at(-1);
  if (last?.type === type) last.text += text;
  else blocks.push({ type, text });
}
