import { useState } from 'react';

import { NoPasskey } from '../../app/passkeys.ts';

export interface Work {
  readonly isBusy: boolean;
  readonly error: unknown;
  /** Stays busy when it has succeeded: the page is left. `undefined` of the work: it goes on here. */
  run(work: () => Promise<'stays' | void>): void;
}

/** One thing after the other, with the reason when it fails. */
export function useWork(): Work {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const run: Work['run'] = (work) => {
    setBusy(true);
    setError(undefined);
    work().then(
      (outcome) => {
        if (outcome === 'stays') setBusy(false);
      },
      (failure: unknown) => {
        if (!(failure instanceof NoPasskey)) setError(failure);
        setBusy(false);
      },
    );
  };
  return { isBusy, error, run };
}
