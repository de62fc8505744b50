import { useRef, useState } from 'react';

import { newIdempotencyKey } from '../../api/client.ts';
import { useSend } from '../../api/use-api.ts';
import type { SendInput } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { FieldRow, Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { centsOf, formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { refreshes } from './account.ts';
import type { Account } from './account.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

type Body = NonNullable<SendInput<'post', '/v1/admin/credits'>['body']>;
/** A request is refunded from its receipt. */
export type CreditType = Exclude<Body['type'], 'refund_request'>;

const movements = ['adjust', 'topup', 'expire', 'payback', 'chargeback'] as const;
const hints = {
  grant: 'grantHint',
  adjust: 'adjustHint',
  topup: 'topupHint',
  expire: 'expireHint',
  payback: 'paybackHint',
  chargeback: 'chargebackHint',
} as const satisfies Readonly<Record<CreditType, keyof OperatorAccountTexts>>;

interface CreditProps {
  readonly of: Account;
  /** A grant is a dialog of its own; of the others one is chosen. */
  readonly type: CreditType;
  readonly onClose: () => void;
}

/** Moves credit. The form has one key as long as its outcome is not known: sent again, it takes effect once. */
export function CreditDialog({ of: account, type: first, onClose }: CreditProps) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const [type, setType] = useState(first);
  const once = useRef(newIdempotencyKey());
  const move = useSend('post', '/v1/admin/credits', { refreshes });
  const title = t(type === 'grant' ? 'grant' : 'moveCredit');
  const submit = (form: FormData): void =>
    move.mutate(
      { body: bodyOf(form, account.id, type), once: once.current },
      {
        onSuccess: ({ moved_microcents: moved, balance_microcents: balance, again }) => {
          const shown = { moved: formatMoney(moved, { sign: true }), balance: formatMoney(balance) };
          toast(t(again ? 'movedBefore' : 'moved', shown));
          onClose();
        },
        onError: ({ status }) => {
          // Refused: nothing has moved, and the next attempt is another one.
          if (status >= 400 && status < 500) once.current = newIdempotencyKey();
        },
      },
    );
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{t('now', { amount: formatMoney(account.available_microcents), name: account.name })}</p>
      <Form error={move.error} onSubmit={submit}>
        {type !== 'grant' && (
          <Select
            name="type"
            label={t('kind')}
            value={type}
            hint={t(hints[type])}
            options={movements.map((one) => ({ value: one, text: t(one) }))}
            onChange={({ target: { value } }) => setType(value as CreditType)}
          />
        )}
        {type === 'grant' && <p>{t(hints[type])}</p>}
        <FieldRow>
          {type === 'adjust' && (
            <Select
              name="direction"
              label={t('direction')}
              options={[
                { value: 'up', text: t('up') },
                { value: 'down', text: t('down') },
              ]}
            />
          )}
          <TextField name="amount_cents" label={t('amount')} isMoney />
        </FieldRow>
        {(type === 'payback' || type === 'chargeback') && (
          <TextField
            name="receipt_id"
            label={t('receipt')}
            hint={t('receiptHint')}
            maxLength={64}
            optional
            autoComplete="off"
          />
        )}
        <TextField name="reason" label={t('reason')} hint={t('reasonHint')} maxLength={1000} autoComplete="off" />
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" busy={move.isPending}>
            {title}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

function bodyOf(form: FormData, account: string, type: CreditType): Body {
  const typed = (name: string): string => String(form.get(name) ?? '').trim();
  const cents = centsOf(typed('amount_cents'));
  const isDown = form.get('direction') === 'down';
  return {
    account_id: account,
    type,
    reason: typed('reason'),
    ...(cents === undefined ? {} : { amount_cents: isDown ? -cents : cents }),
    ...(typed('receipt_id') === '' ? {} : { receipt_id: typed('receipt_id') }),
  };
}
