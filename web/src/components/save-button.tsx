import { useState } from 'react';
import type { ReactNode } from 'react';

import { Button } from './button.tsx';
import { toast } from './toast.tsx';

interface SaveProps {
  /** Name of the file. */
  readonly name: string;
  /** For readers of the screen, where the content says too little. */
  readonly label?: string;
  /** `getFile` with a path of the API. */
  readonly load: () => Promise<Blob>;
  readonly small?: boolean;
  readonly children: ReactNode;
}

/** Saves a file of the API. A link would not do: it cannot say which of a person's accounts is meant. */
export function SaveButton({ name, label, load, small, children }: SaveProps) {
  const [isBusy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      const url = URL.createObjectURL(await load());
      const link = document.createElement('a');
      link.href = url;
      link.download = name;
      link.click();
      // The browser may read it a moment later.
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Button small={small === true} busy={isBusy} aria-label={label} onClick={() => void save()}>
      {children}
    </Button>
  );
}
