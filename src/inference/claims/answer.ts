import type { FinishReason, GenerationBatch, TokenLogprob, UsageReport } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { Engine } from '../engines/engine.ts';

/** The answer to one small request, with all its choices. */
export interface Answer {
  /** By choice. */
  readonly texts: readonly string[];
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly logprobs: readonly TokenLogprob[];
  readonly tokenIds: readonly number[];
  readonly promptIds: readonly number[];
  readonly finishes: readonly FinishReason[];
  /** The usage that the backend reported; `undefined`: none, or one that cannot be true. */
  readonly usage: UsageReport | undefined;
}

/** Bounds everything in the answer: a small request has a small answer, and anything longer is cut. */
const eventsMax = 10_000;

/** Sends the request and collects its answer. Rejects with the engine's error. */
export async function ask(engine: Engine, request: EngineRequest, signal: AbortSignal): Promise<Answer> {
  const answer = {
    texts: [] as string[],
    reasoning: '',
    calls: [] as { name: string; arguments: string }[],
    logprobs: [] as TokenLogprob[],
    tokenIds: [] as number[],
    promptIds: [] as number[],
    finishes: [] as FinishReason[],
    usage: undefined as UsageReport | undefined,
  };
  let events = 0;
  const take = (batch: GenerationBatch): boolean => {
    for (const event of batch) {
      switch (event.type) {
        case 'text':
          answer.texts[event.choice] = (answer.texts[event.choice] ?? '') + event.text;
          answer.logprobs.push(...(event.logprobs ?? []));
          answer.tokenIds.push(...(event.tokenIds ?? []));
          break;
        case 'reasoning':
          answer.reasoning += event.text;
          break;
        case 'tool-call':
          answer.calls[event.call] = { name: event.name, arguments: '' };
          break;
        case 'tool-arguments':
          answer.calls[event.call]!.arguments += event.text;
          break;
        case 'prompt':
          answer.promptIds.push(...(event.tokenIds ?? []));
          break;
        case 'finish':
          answer.finishes.push(event.reason);
          break;
        case 'usage':
          answer.usage = event.counted === true ? undefined : event.usage;
          break;
        case 'start':
        case 'vector':
        case 'score':
      }
    }
    events += batch.length;
    return events < eventsMax;
  };
  await engine.generate(request, signal, take);
  return answer;
}
