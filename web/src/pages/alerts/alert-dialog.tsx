import { useState } from 'react';

import { useKeys, useMembers } from '../../api/known.ts';
import { useSession } from '../../api/session.ts';
import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Checkbox, Field, FieldRow, Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { dollarsTyped } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { alertIn, intervals, subjectKinds, watches, watchOf } from './alert.ts';
import type { Alert, SubjectKind, Watch } from './alert.ts';
import type { AlertTexts } from './messages/en.ts';
import styles from './alerts.module.css';

const refreshes = ['/v1/spend_alerts'];

const watchTexts = {
  spend: 'watchSpend',
  balance: 'watchBalance',
  runway: 'watchRunway',
} as const satisfies Readonly<Record<Watch, keyof AlertTexts>>;
const subjectTexts = {
  account: 'ofAccount',
  key: 'ofKey',
  member: 'ofMember',
  tag: 'ofTag',
} as const satisfies Readonly<Record<SubjectKind, keyof AlertTexts>>;

/** A new alert, or one that is changed: what it watches is fixed once it is there. */
export function AlertDialog({ of: alert, onClose }: { readonly of?: Alert; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const { me } = useSession();
  const create = useSend('post', '/v1/spend_alerts', { refreshes });
  const change = useSend('patch', '/v1/spend_alerts/{id}', { refreshes });
  const [watch, setWatch] = useState<Watch>(alert === undefined ? 'spend' : watchOf(alert));
  const onSuccess = (): void => {
    toast(t('saved'));
    onClose();
  };
  const submit = (form: FormData): void => {
    const { kind, ...body } = alertIn(form);
    if (alert === undefined)
      create.mutate({ body: { ...body, ...(kind === undefined ? {} : { kind }) } }, { onSuccess });
    else change.mutate({ params: { path: { id: alert.id } }, body }, { onSuccess });
  };
  // A rule about spending does not become one about credit.
  const offered = watches.filter((one) => alert === undefined || (one === 'spend') === (alert.kind === 'spend'));
  return (
    <Dialog title={alert === undefined ? t('addAlert') : t('changeAlert')} onClose={onClose}>
      <Form error={create.error ?? change.error} onSubmit={submit}>
        <TextField
          name="name"
          label={t('name')}
          hint={t('nameHint')}
          defaultValue={alert?.name ?? ''}
          maxLength={100}
          autoComplete="off"
          autoFocus
        />
        <Select
          name="watch"
          label={t('firesWhen')}
          value={watch}
          options={offered.map((value) => ({ value, text: t(watchTexts[value]) }))}
          onChange={(event) => setWatch(watches.find((one) => one === event.target.value) ?? 'spend')}
        />
        <FieldRow>
          {watch === 'runway' ? (
            <TextField
              name="runway_days"
              label={t('days')}
              type="number"
              min={1}
              max={365}
              step={1}
              defaultValue={alert?.runway_days ?? 3}
            />
          ) : (
            <TextField
              name="threshold_amount"
              label={t('amount')}
              isMoney
              defaultValue={typeof alert?.threshold_amount === 'number' ? dollarsTyped(alert.threshold_amount) : ''}
            />
          )}
          {watch === 'spend' && (
            <Select
              name="interval"
              label={t('per')}
              defaultValue={alert?.interval ?? 'month'}
              options={intervals.map((value) => ({ value, text: t(value) }))}
            />
          )}
        </FieldRow>
        {watch === 'spend' && <SubjectFields {...(alert === undefined ? {} : { of: alert.subject })} />}
        <RecipientFields recipients={alert?.recipients ?? { members: [me.id] }} />
        <Checkbox
          name="webhook"
          label={t('toWebhooks')}
          hint={t('toWebhooksHint')}
          defaultChecked={alert?.webhook ?? true}
        />
        <FormButtons>
          <Button type="submit" look="primary" busy={create.isPending || change.isPending}>
            {t('save')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

function SubjectFields({ of }: { readonly of?: Alert['subject'] }) {
  const t = useText<AlertTexts>('alerts');
  const keys = useKeys();
  const members = useMembers();
  const [kind, setKind] = useState<SubjectKind>((of?.kind as SubjectKind | undefined) ?? 'account');
  const named: readonly { readonly id: string; readonly name: string }[] = kind === 'key' ? keys : members;
  const known = named.map(({ id, name }) => ({ value: id, text: name }));
  const current = of?.kind === kind ? of.id : undefined;
  const isListed = current === undefined || known.some(({ value }) => value === current);
  return (
    <FieldRow>
      <Select
        name="subject"
        label={t('whose')}
        value={kind}
        options={subjectKinds.map((value) => ({ value, text: t(subjectTexts[value]) }))}
        onChange={(event) => setKind(subjectKinds.find((one) => one === event.target.value) ?? 'account')}
      />
      {(kind === 'key' || kind === 'member') && (
        <Select
          key={`${kind} ${known.length}`}
          name="subject_id"
          label={t(subjectTexts[kind])}
          defaultValue={current ?? known[0]?.value}
          options={[...known, ...(isListed ? [] : [{ value: current, text: current }])]}
        />
      )}
      {kind === 'tag' && (
        <TextField
          name="subject_id"
          label={t('ofTag')}
          defaultValue={current ?? ''}
          maxLength={32}
          autoComplete="off"
        />
      )}
    </FieldRow>
  );
}

function RecipientFields({ recipients }: { readonly recipients: Alert['recipients'] }) {
  const t = useText<AlertTexts>('alerts');
  const members = useMembers();
  const chosen = recipients.members ?? [];
  // One who has left stays in the rule until somebody takes them out.
  const gone = chosen.filter((id) => members.length > 0 && !members.some((member) => member.id === id));
  return (
    <>
      <Field label={t('mailTo')} name="recipients">
        {({ id }) => (
          <div id={id} className={styles['members']} role="group" aria-label={t('mailTo')}>
            {members.map(({ id: member, name, email }) => (
              <Checkbox
                key={member}
                name="member"
                value={member}
                label={
                  <>
                    <bdi>{name}</bdi> <span className={styles['quiet']}>{email}</span>
                  </>
                }
                defaultChecked={chosen.includes(member)}
              />
            ))}
            {gone.map((member) => (
              <Checkbox key={member} name="member" value={member} label={<code>{member}</code>} defaultChecked />
            ))}
          </div>
        )}
      </Field>
      <TextField
        name="addresses"
        label={t('otherAddresses')}
        hint={t('otherAddressesHint')}
        defaultValue={(recipients.addresses ?? []).join(', ')}
        optional
        spellCheck={false}
        autoComplete="off"
      />
    </>
  );
}
