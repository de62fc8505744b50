import { useState } from 'react';

import { useGet, useSend } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { FieldRow, Form, FormButtons, TextField } from '../../components/form.tsx';
import { Facts, Panel } from '../../components/page.tsx';
import { ErrorNote, Loaded, Note } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { centsOf, dollarsTyped, formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { BillingTexts } from './messages/en.ts';

type Settings = Got<'/v1/credits/auto_topup'>;

const refreshes = ['/v1/credits/auto_topup'];
/** The text and the colour of a state. */
const states: Readonly<Record<Settings['state'], readonly [keyof BillingTexts, Tone]>> = {
  off: ['off', 'plain'],
  on: ['on', 'good'],
  stopped: ['stopped', 'bad'],
};

/** The card that was kept pays when the credit runs low, up to a ceiling. */
export function AutoTopup({ mayChange }: { readonly mayChange: boolean }) {
  const t = useText<BillingTexts>('billing');
  const found = useGet('/v1/credits/auto_topup');
  const [isOpen, setOpen] = useState(false);
  const turnOff = useSend('put', '/v1/credits/auto_topup', { refreshes });
  const { data } = found;
  const actions = mayChange && data !== undefined && (
    <>
      {data.enabled && (
        <Button
          small
          busy={turnOff.isPending}
          onClick={() => turnOff.mutate({ body: { ...asked(data), enabled: false } })}
        >
          {t('turnOff')}
        </Button>
      )}
      {data.has_payment_method && (
        <Button small onClick={() => setOpen(true)}>
          {data.state === 'on' ? t('change') : t('turnOn')}
        </Button>
      )}
    </>
  );
  return (
    <Panel title={t('auto')} actions={actions}>
      {turnOff.error !== null && <ErrorNote error={turnOff.error} />}
      <Loaded of={found}>{(settings) => <Shown of={settings} />}</Loaded>
      {isOpen && data !== undefined && <ChangeDialog of={data} onClose={() => setOpen(false)} />}
    </Panel>
  );
}

function Shown({ of }: { readonly of: Settings }) {
  const t = useText<BillingTexts>('billing');
  if (of.state === 'off') return <p>{t(of.has_payment_method ? 'autoOff' : 'autoNoCard')}</p>;
  const { threshold_cents: threshold, amount_cents: amount, monthly_cap_cents: cap } = asked(of);
  return (
    <>
      {of.state === 'stopped' && (
        <Note tone="warn">
          {t('autoStopped')} {of.stop_reason}
        </Note>
      )}
      <Facts
        facts={[
          [t('state'), <Badge tone={states[of.state][1]}>{t(states[of.state][0])}</Badge>],
          [t('threshold'), formatCents(threshold)],
          [t('charge'), formatCents(amount)],
          [t('ceiling'), t('ceilingUsed', { used: formatCents(of.charged_this_month_cents), cap: formatCents(cap) })],
        ]}
      />
    </>
  );
}

/** As they are set, or as they are proposed. */
const asked = (of: Settings) => ({
  threshold_cents: of.threshold_cents ?? Math.max(500, of.proposed_threshold_cents),
  amount_cents: of.amount_cents ?? 2000,
  monthly_cap_cents: of.monthly_cap_cents ?? 10_000,
});

function ChangeDialog({ of, onClose }: { readonly of: Settings; readonly onClose: () => void }) {
  const t = useText<BillingTexts>('billing');
  const change = useSend('put', '/v1/credits/auto_topup', { refreshes });
  const now = asked(of);
  const submit = (form: FormData): void => {
    const cents = (name: string): number => centsOf(String(form.get(name))) ?? 0;
    const body = {
      enabled: true,
      threshold_cents: cents('threshold_cents'),
      amount_cents: cents('amount_cents'),
      monthly_cap_cents: cents('monthly_cap_cents'),
    };
    change.mutate(
      { body },
      {
        onSuccess: () => {
          toast(t('autoSaved'));
          onClose();
        },
      },
    );
  };
  return (
    <Dialog title={t('auto')} onClose={onClose}>
      <Form error={change.error} onSubmit={submit}>
        <TextField
          name="threshold_cents"
          label={t('threshold')}
          hint={t('thresholdHint', { amount: formatCents(of.proposed_threshold_cents) })}
          isMoney
          defaultValue={dollarsTyped(now.threshold_cents)}
        />
        <FieldRow>
          <TextField name="amount_cents" label={t('charge')} isMoney defaultValue={dollarsTyped(now.amount_cents)} />
          <TextField
            name="monthly_cap_cents"
            label={t('ceiling')}
            isMoney
            defaultValue={dollarsTyped(now.monthly_cap_cents)}
          />
        </FieldRow>
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" busy={change.isPending}>
            {t('turnOn')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}
