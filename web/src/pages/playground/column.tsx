import { memo, useState } from 'react';

import { Badge } from '../../components/badge.tsx';
import { Button, IconButton } from '../../components/button.tsx';
import { controlClass, Form, FormButtons, TextArea } from '../../components/form.tsx';
import { Money } from '../../components/figures.tsx';
import { CloseIcon } from '../../components/icons.tsx';
import { useText } from '../../i18n/text.ts';
import { AnswerView } from './answer.tsx';
import type { AnswerActions } from './answer.tsx';
import type { Turn, UserTurn } from './conversation.ts';
import { dataUrlOf } from './families/chat.ts';
import { families } from './families/families.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { Conversation } from './playground.ts';
import type { FamilyName } from './search.ts';
import { featuresOf } from './settings.ts';
import type { Model } from './settings.ts';
import styles from './playground.module.css';

interface ColumnProps {
  readonly at: number;
  readonly model: Model;
  readonly models: readonly Model[];
  readonly family: FamilyName;
  readonly turns: Conversation;
  readonly actions: AnswerActions;
  readonly onModel: (at: number, id: string) => void;
  /** Left out: it is the only one. */
  readonly onRemove?: (at: number) => void;
}

/** A model, and the conversation with it. */
export function Column({ at, model, models, family, turns, actions, onModel, onRemove }: ColumnProps) {
  const t = useText<PlaygroundTexts>('playground');
  const features = featuresOf(family, model);
  return (
    <section className={styles['column']} aria-label={model.model}>
      <div className={styles['columnHead']}>
        <select
          className={controlClass}
          aria-label={t('modelOf', { n: at + 1 })}
          value={model.model}
          onChange={({ target }) => onModel(at, target.value)}
        >
          {models.map(({ model: id }) => (
            <option key={id}>{id}</option>
          ))}
        </select>
        <Spent of={turns} />
        {onRemove !== undefined && (
          <IconButton
            small
            label={t('remove', { name: model.model })}
            icon={<CloseIcon />}
            onClick={() => onRemove(at)}
          />
        )}
      </div>
      {features !== undefined && !features.includes('vision') && turns.some(hasImage) && (
        <p className={styles['notHere']}>{t('imagesLeftOut')}</p>
      )}
      {features === undefined && <p className={styles['notHere']}>{t('notHere', { api: families[family].title })}</p>}
      {turns.map((turn, place) =>
        turn.kind === 'user' ? (
          <UserView key={place} of={turn} column={at} place={place} edit={actions.edit} />
        ) : (
          <AnswerView
            key={place}
            of={turn}
            column={at}
            place={place}
            isLast={place === turns.length - 1}
            actions={actions}
          />
        ),
      )}
    </section>
  );
}

const hasImage = (turn: Turn): boolean => turn.kind === 'user' && turn.attachments.some(({ kind }) => kind === 'image');

/** What the answers of a conversation have cost together. */
function Spent({ of: turns }: { readonly of: Conversation }) {
  const t = useText<PlaygroundTexts>('playground');
  const receipts = turns.flatMap((turn) => (turn.kind === 'answer' && turn.receipt ? [turn.receipt] : []));
  if (receipts.length === 0) return null;
  return (
    <span className={styles['spent']}>
      {t('answers', { n: receipts.length })} ·{' '}
      <Money microcents={receipts.reduce((sum, { total_cost_microcents: cost }) => sum + cost, 0)} />
    </span>
  );
}

interface UserProps {
  readonly of: UserTurn;
  readonly column: number;
  readonly place: number;
  readonly edit: AnswerActions['edit'];
}

/** What was asked; it can be asked in other words. */
const UserView = memo(function UserView({ of: turn, column, place, edit }: UserProps) {
  const t = useText<PlaygroundTexts>('playground');
  const [isEdited, setEdited] = useState(false);
  const { text, attachments } = turn;
  const run = (form: FormData): void => {
    setEdited(false);
    edit(column, place, String(form.get('text')));
  };
  if (isEdited)
    return (
      <Form onSubmit={run} label={t('edit')}>
        <TextArea
          name="text"
          label={t('message')}
          defaultValue={text}
          rows={Math.min(12, text.split('\n').length + 1)}
          autoFocus
        />
        <FormButtons>
          <Button small onClick={() => setEdited(false)}>
            {t('cancel')}
          </Button>
          <Button small type="submit" look="primary">
            {t('runAgain')}
          </Button>
        </FormButtons>
      </Form>
    );
  return (
    <div className={styles['user']}>
      {attachments.map((attachment, at) =>
        attachment.kind === 'image' ? (
          <img key={at} className={styles['image']} src={dataUrlOf(attachment)} alt={attachment.name} />
        ) : (
          <Badge key={at}>
            {t('file')}: {attachment.name}
          </Badge>
        ),
      )}
      <div className={styles['text']} dir="auto">
        {text}
      </div>
      <Button small look="quiet" onClick={() => setEdited(true)}>
        {t('edit')}
      </Button>
    </div>
  );
});
