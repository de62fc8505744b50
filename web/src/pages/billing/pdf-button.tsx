import { getFile } from '../../api/use-api.ts';
import { SaveButton } from '../../components/save-button.tsx';
import { useText } from '../../i18n/text.ts';
import type { BillingTexts } from './messages/en.ts';

interface PdfProps {
  readonly kind: 'invoices' | 'receipts';
  readonly id: string;
  /** Number of the document: the name of its file. */
  readonly name: string;
}

export function PdfButton({ kind, id, name }: PdfProps) {
  const t = useText<BillingTexts>('billing');
  const path = kind === 'invoices' ? '/v1/invoices/{id}.pdf' : '/v1/receipts/{id}.pdf';
  return (
    <SaveButton small name={`${name}.pdf`} label={t('save', { name })} load={() => getFile(path, { path: { id } })}>
      PDF
    </SaveButton>
  );
}
