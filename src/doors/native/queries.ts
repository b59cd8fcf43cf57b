/** The queries of the native routes. */
import { Type } from '../../schema/typebox.ts'
import { oneOf, PROBLEM } from '../../schema/contract.ts'
import { query } from '../query.ts'

export const LIST_QUERY = query({
  state: oneOf(['open', 'closed'], { description: 'Only open, or only closed ones.' }),
  key: Type.String({ description: 'Only those of this key.' }),
  label: Type.String({
    pattern: '^[^:]+:',
    [PROBLEM]: 'must be name:value',
    description: 'Only those with this label, as name:value.',
  }),
  limit: Type.Integer({ minimum: 1, description: 'How many; at most the limit listMax.' }),
  cursor: Type.String({ description: 'The nextCursor of the page before.' }),
})

export const CLOSE_QUERY = query({
  erase: Type.Boolean({ description: 'Also erase its log for ever.' }),
})

export const CHANGES_QUERY = query({
  after: Type.Integer({
    minimum: 0,
    description: 'The position of the last page; without it, the end of the feed.',
  }),
  limit: Type.Integer({ minimum: 1, description: 'How many changes on a page.' }),
})

export const EVENTS_QUERY = query({
  after: Type.String({ description: 'The last event that is known: SEQ, on a stream SEQ.N too.' }),
  limit: Type.Integer({ minimum: 1, description: 'How many events on a page.' }),
})
