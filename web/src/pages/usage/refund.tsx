import { useState } from 'react';

import { useSession } from '../../api/session.ts';
import { useGet, useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { Facts } from '../../components/page.tsx';
import { toast } from '../../components/toast.tsx';
import { exactPattern, formatMoney, microcentsOf, microcentsTyped } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { Receipt } from './receipt.ts';
import type { UsageTexts } from './messages/en.ts';

interface RefundProps {
  readonly of: Pick<Receipt, 'id' | 'total_cost_microcents'>;
  /** Id of the account that was charged. */
  readonly account: string;
  readonly onClose: () => void;
}

/** What shows the charge of a request, or the credit of its account. */
const refreshes = ['/v1/generation', '/v1/costs', '/v1/credits', '/v1/ledger', '/v1/account', '/v1/admin/'];
/** The same of an account that is not looked at, of which the others show nothing. */
const refreshesElsewhere = ['/v1/admin/'];

const exact = (microcents: number): string => formatMoney(microcents, { precision: 'exact' });

/** Gives back a charge or a part of it, once its effect was seen. Sent twice, it takes effect once: its key is the request. */
export function RefundDialog({ of: { id, total_cost_microcents: charged }, account, onClose }: RefundProps) {
  const t = useText<UsageTexts>('usage');
  const [isPart, setIsPart] = useState(false);
  const [typed, setTyped] = useState('');
  const payer = useGet('/v1/admin/accounts/{id}', { path: { id: account } }).data;
  const isOwn = useSession().account?.id === account;
  const refund = useSend('post', '/v1/admin/credits', { refreshes: isOwn ? refreshes : refreshesElsewhere });
  const amount = isPart ? microcentsOf(typed) : charged;
  const isTooMuch = amount !== undefined && amount > charged;
  const isReady = amount !== undefined && amount > 0 && !isTooMuch;
  const submit = (form: FormData): void => {
    if (!isReady) return;
    refund.mutate(
      {
        body: {
          account_id: account,
          type: 'refund_request',
          request_id: id,
          amount_microcents: amount,
          reason: String(form.get('reason')).trim(),
        },
      },
      {
        onSuccess: ({ moved_microcents: moved, balance_microcents: balance, again }) => {
          toast(again ? t('refundBefore') : t('refundDone', { amount: exact(moved), balance: formatMoney(balance) }));
          onClose();
        },
      },
    );
  };
  const balance = payer?.balance_microcents;
  return (
    <Dialog title={t('refundRow')} onClose={onClose}>
      <p>{t('refundHint')}</p>
      <Form error={refund.error} onSubmit={submit}>
        <Select
          label={t('refundWhat')}
          value={isPart ? 'part' : 'whole'}
          options={[
            { value: 'whole', text: t('refundWhole') },
            { value: 'part', text: t('refundPart') },
          ]}
          onChange={({ target: { value } }) => setIsPart(value === 'part')}
        />
        {isPart && (
          <TextField
            name="amount_microcents"
            label={t('refundAmount')}
            isMoney
            pattern={exactPattern}
            placeholder={microcentsTyped(charged)}
            value={typed}
            onChange={({ target: { value } }) => setTyped(value)}
            error={isTooMuch ? t('refundTooMuch', { amount: exact(charged) }) : undefined}
          />
        )}
        <TextField name="reason" label={t('reason')} hint={t('reasonHint')} maxLength={1000} autoComplete="off" />
        <div aria-live="polite">
          <Facts
            facts={[
              [t('charged'), exact(charged)],
              [t('refunded'), isReady ? exact(amount) : '–'],
              [t('staysCharged'), isReady ? exact(charged - amount) : '–'],
              [
                t('balance'),
                isReady && balance !== undefined
                  ? t('movement', { from: exact(balance), to: exact(balance + amount) })
                  : '–',
              ],
            ]}
          />
        </div>
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" busy={refund.isPending} disabled={!isReady}>
            {isReady ? t('refundAction', { amount: exact(amount) }) : t('refundRow')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}
