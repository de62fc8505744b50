import type { OperationServices } from '../accounts/operation.ts';
import { signDay } from '../accounts/signing-key.ts';
import type { ClosingCursor } from '../store/proofs/close-day.ts';

/** Signs the days of usage that are complete. Each step is a short transaction, and others get their turn after a few. */
export class UsageHeads {
  readonly #services: Pick<OperationServices, 'repositories' | 'secret' | 'now'>;
  #after: ClosingCursor | undefined;

  constructor(services: Pick<OperationServices, 'repositories' | 'secret' | 'now'>) {
    this.#services = services;
  }

  /** Runs for a few seconds; true: there is more to sign. */
  async run(forMs: number, signal?: AbortSignal): Promise<boolean> {
    const { repositories, now } = this.#services;
    const endMs = performance.now() + forMs;
    while (signal?.aborted !== true && performance.now() < endMs) {
      const step = await repositories.closeDay({ now: now(), after: this.#after });
      this.#after = step.state === 'more' ? step.next : undefined;
      if (step.state === 'done' || step.state === 'elsewhere') return false;
      if (step.state === 'unsigned') await repositories.addDayHead(await signDay(step.head, this.#services));
    }
    return true;
  }
}
