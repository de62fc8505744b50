import type { GenerationBatch } from '../../../src/generation/event.ts';
import type { EngineRequest } from '../../../src/generation/request.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';

/**
 * What an engine generates, batch by batch: it is held back until the next one is asked for, and stopped when the loop is left.
 * Nothing happens before the first read.
 */
export async function* pull(
  engine: Pick<Engine, 'generate'>,
  request: EngineRequest,
  signal: AbortSignal,
): AsyncGenerator<GenerationBatch, undefined> {
  let batch: GenerationBatch | undefined;
  let outcome: { readonly error?: unknown } | undefined;
  let wake = (): void => {};
  let proceed = (_goesOn: boolean): void => {};
  const ended = (result: { readonly error?: unknown }): void => {
    outcome = result;
    wake();
  };
  void engine
    .generate(request, signal, (next) => {
      batch = next;
      wake();
      return new Promise<boolean>((resolve) => (proceed = resolve));
    })
    .then(
      () => ended({}),
      (error: unknown) => ended({ error }),
    );
  try {
    for (;;) {
      if (batch === undefined && outcome === undefined) await new Promise<void>((resolve) => (wake = resolve));
      if (batch !== undefined) {
        yield batch;
        batch = undefined;
        proceed(true);
      } else if (outcome !== undefined) {
        if ('error' in outcome) throw outcome.error;
        return undefined;
      }
    }
  } finally {
    proceed(false);
  }
}
