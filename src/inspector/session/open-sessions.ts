/**
 * The sessions to which this page is attached: those that were opened last, so that opening another
 * one does not end a session that lives only while it has a holder.
 */
import { recall } from '../shared/memory.ts'
import { SessionModel } from './session-model.ts'

const ATTACHED_MAX = 8

/** In the order in which they were shown, the last one last. */
const models = new Map<string, SessionModel>()

export function openSession(id: string): SessionModel {
  const model = models.get(id) ?? new SessionModel({ id, link: recall(`link:${id}`) })
  models.delete(id)
  models.set(id, model)
  for (const [other, oldest] of models) {
    if (models.size <= ATTACHED_MAX) break
    oldest.leave()
    models.delete(other)
  }
  return model
}
