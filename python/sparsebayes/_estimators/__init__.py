"""What the estimators are composed of: basis, paths of a fit, endings, predictions."""
