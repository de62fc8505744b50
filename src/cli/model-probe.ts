import { measureTexts, sayHello, type Probe, type TaskProbe } from '../app/ask-engine.ts';
import type { Engine } from '../inference/engines/engine.ts';
import { createLlamaEngine, type LlamaEngineOptions } from '../inference/engines/llama/engine.ts';
import type { Purpose } from '../inference/engines/llama/purpose.ts';

/** Loads a model and asks it a question, and measures its speed alone on this machine. Rejects if it cannot be loaded. */
export const probeModel = (
  modelFile: string,
  contextLength: number,
  hasChatTemplate: boolean,
  means: ProbeMeans,
): Promise<Probe> =>
  withEngine({ modelFile, contextLength, purpose: 'write', ...means }, (engine) => sayHello(engine, hasChatTemplate));

/** What it runs on: the same as in a service here. */
export type ProbeMeans = Pick<LlamaEngineOptions, 'gpu' | 'variables' | 'adapter'>;

/** The same for a model that embeds or ranks: the size of its results, and how fast it reads. */
export const probeTask = (
  modelFile: string,
  contextLength: number,
  purpose: Exclude<Purpose, 'write'>,
  means: ProbeMeans,
): Promise<TaskProbe> =>
  withEngine({ modelFile, contextLength, purpose, ...means }, (engine) => measureTexts(engine, purpose));

/** A line about the results of a model that embeds or ranks. */
export const madeLine = (purpose: Exclude<Purpose, 'write'>, { dimensions, tokensPerSecond }: TaskProbe): string =>
  `makes    ${purpose === 'embed' ? `vectors of ${dimensions} numbers` : 'a score for each document'}, from ${tokensPerSecond.toFixed(1)} tokens a second`;

async function withEngine<Answer>(
  {
    modelFile,
    ...options
  }: Pick<LlamaEngineOptions, 'contextLength' | 'purpose'> & ProbeMeans & { readonly modelFile: string },
  ask: (engine: Engine) => Promise<Answer>,
): Promise<Answer> {
  const engine = createLlamaEngine({
    name: 'probe',
    modelFile: Promise.resolve(modelFile),
    ...options,
    slots: 1,
    defaultSystem: 'template',
    log: () => {},
  });
  try {
    await engine.ready;
    return await ask(engine);
  } finally {
    await engine.close();
  }
}
