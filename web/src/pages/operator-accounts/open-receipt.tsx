import { useNavigate } from '@tanstack/react-router';

import { FormDialog } from '../../components/dialog.tsx';
import { TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

/** Leads from an id that a customer has sent to the receipt, from which the request is refunded. */
export function OpenReceiptDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const navigate = useNavigate();
  return (
    <FormDialog
      title={t('refundRequest')}
      text={t('refundHint')}
      action={t('openReceipt')}
      busy={false}
      error={null}
      onSubmit={(form) =>
        void navigate({ to: `/requests/${encodeURIComponent(String(form.get('request_id')).trim())}` })
      }
      onClose={onClose}
    >
      <TextField name="request_id" label={t('requestId')} maxLength={128} autoComplete="off" spellCheck={false} />
    </FormDialog>
  );
}
