/** What the tests of each family share that hold a stream against the whole answer. */
import type { AnswerFormat, ResponseHead } from '../../src/inference/dialects/dialect.ts';
import type { GenerationBatch, GenerationEvent } from '../../src/generation/event.ts';
import { Fold } from '../../src/generation/fold.ts';
import type { Generation } from '../../src/generation/fold.ts';
import { Meter } from '../../src/inference/pipeline/meter.ts';
import { legalStream } from '../generation/legal-streams.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { plainSigner } from '../support/plain-signer.ts';

export const head: ResponseHead = {
  requestId: 'req_0123456789ab',
  id: '00'.repeat(16),
  created: 1_790_000_000,
  model: 'a"model',
  signer: plainSigner,
  now: () => 1_790_000_001,
};

/** The batches that leave the pipeline. */
export function metered(stream: LegalStream): readonly GenerationBatch[] {
  const meter = new Meter({
    choices: stream.choices,
    promptTokensLikely: 0,
    promptTokensPossible: Infinity,
    begunMs: 0,
  });
  const passed: GenerationBatch[] = [];
  for (const batch of stream.batches) {
    meter.read(batch);
    if (meter.pass.length > 0) passed.push(meter.pass);
  }
  return [...passed, meter.closing()];
}

export function streamOf(format: AnswerFormat, batches: readonly GenerationBatch[]): string {
  const encoder = format.openStream(head);
  return batches.map((batch) => encoder.batch(batch)).join('') + encoder.end();
}

export function generationOf(batches: readonly GenerationBatch[]): Generation {
  const fold = new Fold();
  for (const batch of batches) fold.read(batch);
  return fold.generation();
}

/** For families with one choice, in which a backend that goes back to a call it has left is refused (`Blocks`). */
export const oneChoiceStream = legalStream.map(ofOneChoice);

function ofOneChoice(stream: LegalStream): LegalStream {
  let open: number | undefined;
  const isKept = (event: GenerationEvent): boolean => {
    if ('choice' in event && event.choice > 0) return false;
    if (event.type === 'tool-call') open = event.call;
    if ((event.type === 'text' || event.type === 'reasoning') && event.text !== '') open = undefined;
    return event.type !== 'tool-arguments' || event.call === open;
  };
  const batches = stream.batches.map((batch) => batch.filter(isKept)).filter((batch) => batch.length > 0);
  return { ...stream, choices: 1, batches };
}

/** What the engine said. */
export const saidOf = (events: readonly GenerationEvent[], type: 'text' | 'reasoning' | 'tool-arguments'): string =>
  events.reduce((sum, event) => (event.type === type ? sum + event.text : sum), '');
