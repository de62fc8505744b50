import { useEffect, useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Checkbox, Form, FormButtons, TextField } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { centsOf, dollarsTyped, formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { rememberTopup } from './checkout.ts';
import type { BillingTexts } from './messages/en.ts';
import styles from './billing.module.css';

/** In cents; any other amount can be typed. */
const usualAmounts = [500, 1000, 2500, 5000, 10_000];

interface AddCreditProps {
  readonly isDemo: boolean;
  readonly onClose: () => void;
}

/** Leads to the page of the payment provider, which leads back to `/billing?checkout=…`. */
export function AddCreditDialog({ isDemo, onClose }: AddCreditProps) {
  const t = useText<BillingTexts>('billing');
  const topup = useSend('post', '/v1/credits/topups', { refreshes: ['/v1/credits'] });
  const [amount, setAmount] = useState(dollarsTyped(1000));
  const { reset } = topup;
  useEffect(() => {
    // The back button of the payment page may bring back this very document, with its button still waiting.
    const shown = ({ persisted }: PageTransitionEvent): void => {
      if (persisted) reset();
    };
    window.addEventListener('pageshow', shown);
    return () => window.removeEventListener('pageshow', shown);
  }, [reset]);
  const submit = (form: FormData): void => {
    const back = (outcome: string): string => `${location.origin}/billing?checkout=${outcome}`;
    topup.mutate(
      {
        body: {
          amount_cents: centsOf(amount) ?? 0,
          success_url: back('done'),
          cancel_url: back('cancelled'),
          // Left out, a card is kept only where automatic top-up is on.
          ...(form.has('save_payment_method') ? { save_payment_method: true } : {}),
        },
      },
      {
        onSuccess: ({ id, checkout_url: url }) => {
          rememberTopup(id);
          location.assign(url ?? back('done'));
        },
      },
    );
  };
  return (
    <Dialog title={t('add')} onClose={onClose}>
      <Form error={topup.error} onSubmit={submit}>
        <div className={styles['amounts']} role="group" aria-label={t('usualAmounts')}>
          {usualAmounts.map((cents) => (
            <Button key={cents} aria-pressed={centsOf(amount) === cents} onClick={() => setAmount(dollarsTyped(cents))}>
              {formatCents(cents)}
            </Button>
          ))}
        </div>
        <TextField
          name="amount_cents"
          label={t('amount')}
          hint={t('amountHint')}
          isMoney
          value={amount}
          onChange={(event) => setAmount(event.target.value)}
        />
        <Checkbox name="save_payment_method" label={t('keepCard')} hint={t('keepCardHint')} />
        {isDemo && <Note>{t('demo')}</Note>}
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" busy={topup.isPending || topup.isSuccess}>
            {t('toPayment')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}
