import { useState } from 'react';

import { client, content } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import type { BillingTexts } from './messages/en.ts';

interface PdfProps {
  readonly kind: 'invoices' | 'receipts';
  readonly id: string;
  /** Number of the document: the name of its file. */
  readonly name: string;
}

/** Saves a document. A link would not do: it cannot say which of a person's accounts is meant. */
export function PdfButton({ kind, id, name }: PdfProps) {
  const t = useText<BillingTexts>('billing');
  const [isBusy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      const path = kind === 'invoices' ? '/v1/invoices/{id}.pdf' : '/v1/receipts/{id}.pdf';
      const asked = client.GET(path, { params: { path: { id } }, parseAs: 'blob' });
      const url = URL.createObjectURL((await content(asked)) as unknown as Blob);
      const link = document.createElement('a');
      link.href = url;
      link.download = `${name}.pdf`;
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
    <Button small busy={isBusy} aria-label={t('save', { name })} onClick={() => void save()}>
      PDF
    </Button>
  );
}
